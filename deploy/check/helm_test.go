package check

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// render returns the output of the chart in deploy/helm for some values, as text by file.
func render(release, values string) (map[string]string, error) {
	chart, err := loader.LoadDir(filepath.Join("..", "helm"))
	if err != nil {
		return nil, err
	}
	return renderChart(chart, release, values)
}

// renderChart is render for another chart.
func renderChart(chart *chart.Chart, release, values string) (map[string]string, error) {
	chosen, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, err
	}
	all, err := chartutil.ToRenderValues(chart, chosen, chartutil.ReleaseOptions{Name: release,
		Namespace: "default", IsInstall: true}, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.Render(chart, all)
}

// rendered strictly decodes the output of the chart for some values.
func rendered(t *testing.T, release, values string) *manifests {
	t.Helper()
	files, err := render(release, values)
	succeed(t, err)
	m := newManifests()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".txt") { // Helm prints it
			m.notes = files[name]
			continue
		}
		for document := range bytes.SplitSeq([]byte(files[name]), []byte("\n---\n")) {
			var kind metav1.TypeMeta
			if err := yaml.Unmarshal(document, &kind); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, document)
			}
			if kind.Kind != "" { // a file may render to nothing
				m.add(t, kind.APIVersion+"/"+kind.Kind, document)
			}
		}
	}
	return m
}

const secrets = "clusterSecret: 0123456789abcdef0123456789abcdef\ntokens: t\n"

// charts are values with the name of their release, and the prefix of keys in Redis.
var charts = [...]struct{ release, prefix, values string }{
	{"twotier", "tt", secrets},
	{"shop", "shop.eu", "existingSecret: kept\nreplicas: 5\nnetworkPolicy: {enabled: false}\n" +
		"env: {TWOTIER_ON_COLD: deny}\nredisPrefix: shop.eu\nredisPassword: {secret: redis}\n" +
		"resp: {enabled: true}\ngrpc: {enabled: true}\nservice: {annotations: {a: b}}\n" +
		"podAnnotations: {a: b}\nimagePullSecrets: [{name: r}]\nnodeSelector: {a: b}\n" +
		"tolerations: [{key: a, operator: Exists}]\naffinity: {nodeAffinity: {}}\n"},
	{"twotier-eu", "tt", secrets + "resp: {enabled: true}\n"},
}

// TestChart renders the chart with several values, and checks the objects like the manifests of
// deploy/kubernetes: each is decoded strictly, all fit together, and twotier accepts the settings.
func TestChart(t *testing.T) {
	for _, c := range charts {
		t.Run(c.release, func(t *testing.T) {
			m := rendered(t, c.release, c.values)
			if strings.Contains(c.values, "networkPolicy") {
				if m.network.Name != "" {
					t.Error("there is a network policy")
				}
				m.network.Spec.PodSelector = *m.set.Spec.Selector // nothing to compare
			}
			selectsItsPods(t, m)
			if prefix := startsWithItsSettings(t, m)["redis-prefix"]; prefix != c.prefix {
				t.Errorf("the prefix in Redis is %s, want %s", prefix, c.prefix)
			}
			m.checkNames(t)
		})
	}
}

// checkNames checks that the nodes to join are the nodes of the set, and that its volumes exist.
func (m *manifests) checkNames(t *testing.T) {
	t.Helper()
	var join []string
	for i := range *m.set.Spec.Replicas {
		join = append(join, fmt.Sprintf("%s-%d.%s:7946", m.set.Name, i, m.set.Spec.ServiceName))
	}
	environ := map[string]string{}
	for _, v := range m.set.Spec.Template.Spec.Containers[0].Env {
		environ[v.Name] = v.Value
	}
	for name, s := range m.services {
		if shown := "service/" + name + " "; s.Spec.ClusterIP != corev1.ClusterIPNone &&
			!strings.Contains(m.notes, shown) {
			t.Errorf("the notes don't have %q:\n%s", shown, m.notes)
		}
	}
	if environ["TWOTIER_JOIN"] != strings.Join(join, ",") {
		t.Errorf("nodes join %s, and are %s", environ["TWOTIER_JOIN"], join)
	}
	for _, v := range m.set.Spec.Template.Spec.Volumes {
		switch {
		case v.ConfigMap != nil:
			if c := m.configs[v.ConfigMap.Name]; !strings.Contains(c.Data["rules.yaml"], "rules:") {
				t.Errorf("volume %s: %v", v.Name, c)
			}
		case v.Secret.SecretName != "kept" && v.Secret.SecretName != "redis":
			s := m.secrets[v.Secret.SecretName]
			if s.StringData["cluster-secret"] == "" || s.StringData["tokens"] == "" {
				t.Errorf("volume %s: %v", v.Name, slices.Collect(maps.Keys(s.StringData)))
			}
		}
	}
}

// TestChartIsAsTheManifests compares the set of the chart with the set of deploy/kubernetes: their
// parts are the same.
func TestChartIsAsTheManifests(t *testing.T) {
	plain, chart := load(t).set.Spec, rendered(t, "twotier", secrets).set.Spec
	for what, of := range map[string]func(p *corev1.PodSpec) any{
		"security":   func(p *corev1.PodSpec) any { return p.SecurityContext },
		"container":  func(p *corev1.PodSpec) any { return p.Containers[0].SecurityContext },
		"startup":    func(p *corev1.PodSpec) any { return p.Containers[0].StartupProbe },
		"liveness":   func(p *corev1.PodSpec) any { return p.Containers[0].LivenessProbe },
		"readiness":  func(p *corev1.PodSpec) any { return p.Containers[0].ReadinessProbe },
		"resources":  func(p *corev1.PodSpec) any { return p.Containers[0].Resources },
		"image":      func(p *corev1.PodSpec) any { return p.Containers[0].Image },
		"mounts":     func(p *corev1.PodSpec) any { return p.Containers[0].VolumeMounts },
		"ports":      func(p *corev1.PodSpec) any { return p.Containers[0].Ports },
		"time":       func(p *corev1.PodSpec) any { return p.TerminationGracePeriodSeconds },
		"privileges": func(p *corev1.PodSpec) any { return p.AutomountServiceAccountToken },
	} {
		a, errA := yaml.Marshal(of(&plain.Template.Spec))
		b, errB := yaml.Marshal(of(&chart.Template.Spec))
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: deploy/kubernetes has\n%s\nthe chart has\n%s%v %v", what, a, b, errA,
				errB)
		}
	}
}

// TestChartWantsSecrets: without secrets, the error names a remedy.
func TestChartWantsSecrets(t *testing.T) {
	for _, values := range []string{"", "clusterSecret: x", "tokens: x"} {
		if _, err := render("twotier", values); err == nil ||
			!strings.Contains(err.Error(), "set existingSecret, or") {
			t.Errorf("%q: %v", values, err)
		}
	}
}

// TestChartDerivesMemory: the limit of the container follows from maxMemory, which twotier accepts
// as well, unless resources have another one. The other resources stay.
func TestChartDerivesMemory(t *testing.T) {
	for _, test := range []struct{ values, request, limit string }{
		{"", "1396Mi", "1396Mi"}, {"maxMemory: 512MiB", "730Mi", "730Mi"},
		{"maxMemory: 100MB", "188Mi", "188Mi"}, {"maxMemory: 1.5gib", "2061Mi", "2061Mi"},
		{"maxMemory: 1GB", "1304Mi", "1304Mi"},
		{"maxMemory: 64MiB\nresources: {requests: {cpu: 250m, memory: 9Mi}}", "9Mi", "148Mi"},
		{"maxMemory: 64MiB\nresources: {limits: {memory: 4Gi, cpu: 2}}", "148Mi", "4Gi"},
	} {
		m := rendered(t, "twotier", secrets+test.values)
		has := m.set.Spec.Template.Spec.Containers[0].Resources
		if got := has.Limits.Memory().String(); got != test.limit {
			t.Errorf("%s: the limit is %s, want %s", test.values, got, test.limit)
		}
		if got := has.Requests.Memory().String(); got != test.request ||
			has.Requests.Cpu().IsZero() {
			t.Errorf("%s: requests %v, want %s", test.values, has.Requests, test.request)
		}
		startsWithItsSettings(t, m)
	}
}

// TestChartWantsASizeWithItsUnit: the error names the value and the remedy.
func TestChartWantsASizeWithItsUnit(t *testing.T) {
	for _, size := range []string{"3", `"3"`, "1073741824", "1Gi", `""`, "-1GiB", "1KiB", "much",
		"1.GiB", "1GiB2", "GiB", "[1GiB]"} {
		if _, err := render("twotier", secrets+"maxMemory: "+size); err == nil ||
			!strings.Contains(err.Error(), "maxMemory: ") ||
			!strings.Contains(err.Error(), "such as 1GiB") {
			t.Errorf("%s: %v", size, err)
		}
	}
}

// TestReleasedChart builds the chart of a release and loads it from its archive, as helm install
// does. Its objects are those of deploy/helm with the release's version, as far as tags and labels
// can have it.
func TestReleasedChart(t *testing.T) {
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), filepath.Join("..", "..", "scripts", "release"), dir)
	build.Env = append(os.Environ(), "PARTS=chart", "VERSION=1.2.3-rc.1+build",
		"SOURCE_DATE_EPOCH=1700000000")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	packed, err := loader.LoadFile(filepath.Join(dir, "twotier-1.2.3-rc.1+build-chart.tgz"))
	succeed(t, err)
	if err := packed.Validate(); err != nil {
		t.Error(err)
	}
	if m := packed.Metadata; m.Version != "1.2.3-rc.1+build" || m.AppVersion != "1.2.3-rc.1-build" {
		t.Errorf("the chart's version is %s, the program's %s", m.Version, m.AppVersion)
	}
	got, err := renderChart(packed, "shop", secrets)
	succeed(t, err)
	plain, err := loader.LoadDir(filepath.Join("..", "helm"))
	succeed(t, err)
	plain.Metadata.Version, plain.Metadata.AppVersion = "1.2.3-rc.1+build", "1.2.3-rc.1-build"
	want, err := renderChart(plain, "shop", secrets)
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, got\n%s\nwant\n%s", err, got, want)
	}
	set := got["twotier/templates/statefulset.yaml"]
	for _, part := range []string{`image: "twotier:1.2.3-rc.1-build"`,
		`helm.sh/chart: "twotier-1.2.3-rc.1_build"`,
		`app.kubernetes.io/version: "1.2.3-rc.1-build"`} {
		if !strings.Contains(set, part) {
			t.Errorf("there is no %s in\n%s", part, set)
		}
	}
}

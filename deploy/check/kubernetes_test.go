package check

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"
)

// program builds twotier, once, and returns its path.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "deploy")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "twotier")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", path, "./cmd/twotier")
	build.Dir = filepath.Join("..", "..")
	build.Stderr = os.Stderr
	return path, build.Run()
})

func TestMain(m *testing.M) {
	status := m.Run()
	if path, err := program(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(status)
}

// settings are the settings that serve would use.
type settings map[string]string

// accepted runs twotier with an environment, and checks that it uses every TWOTIER_ variable in it.
func accepted(t *testing.T, environ []string) settings {
	t.Helper()
	path, err := program()
	succeed(t, err)
	cmd := exec.Command(path, "serve", "--print-config")
	cmd.Env = environ
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("refused: %v\n%s", err, out)
	}
	s := settings{}
	for line := range strings.Lines(string(out)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			value, origin, _ := strings.Cut(value, " # ")
			s[name] = value
			s["#"+strings.TrimPrefix(origin, "environment ")] = value
		}
	}
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if _, ok := s["#"+name]; !ok && strings.HasPrefix(name, "TWOTIER_") {
			t.Errorf("%s sets nothing", name)
		}
	}
	return s
}

// stopping returns how long a server may take to stop, see docs/operations.md.
func (s settings) stopping(t *testing.T) time.Duration {
	t.Helper()
	total := 20 * time.Second
	for _, name := range []string{"drain-delay", "drain-timeout"} {
		d, err := time.ParseDuration(s[name])
		succeed(t, err)
		total += d
	}
	return total
}

// manifests are the objects in deploy/kubernetes, or from the chart in deploy/helm.
type manifests struct {
	set        appsv1.StatefulSet
	services   map[string]corev1.Service
	disruption policyv1.PodDisruptionBudget
	network    networkingv1.NetworkPolicy
	secrets    map[string]corev1.Secret
	configs    map[string]corev1.ConfigMap
	notes      string // the chart's message after installation
}

// succeed ends the test if there is an error.
func succeed(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, parts ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{".."}, parts...)...))
	succeed(t, err)
	return text
}

// load decodes the resources that the kustomization lists. A member that Kubernetes does not know
// is an error.
func load(t *testing.T) *manifests {
	t.Helper()
	var list types.Kustomization
	strict(t, read(t, "kubernetes", "kustomization.yaml"), &list)
	m := newManifests()
	for _, file := range list.Resources {
		for document := range bytes.SplitSeq(read(t, "kubernetes", file), []byte("\n---\n")) {
			var kind metav1.TypeMeta
			if err := yaml.Unmarshal(document, &kind); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			m.add(t, kind.APIVersion+"/"+kind.Kind, document)
		}
	}
	return m
}

func newManifests() *manifests {
	return &manifests{services: map[string]corev1.Service{}, secrets: map[string]corev1.Secret{},
		configs: map[string]corev1.ConfigMap{}}
}

func (m *manifests) add(t *testing.T, kind string, document []byte) {
	t.Helper()
	switch kind {
	case "apps/v1/StatefulSet":
		strict(t, document, &m.set)
	case "v1/Service":
		var s corev1.Service
		strict(t, document, &s)
		m.services[s.Name] = s
	case "v1/Secret":
		var s corev1.Secret
		strict(t, document, &s)
		m.secrets[s.Name] = s
	case "v1/ConfigMap":
		var c corev1.ConfigMap
		strict(t, document, &c)
		m.configs[c.Name] = c
	case "policy/v1/PodDisruptionBudget":
		strict(t, document, &m.disruption)
	case "networking.k8s.io/v1/NetworkPolicy":
		strict(t, document, &m.network)
	default:
		t.Errorf("unknown kind %s", kind)
	}
}

func strict(t *testing.T, document []byte, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(document, into); err != nil {
		t.Errorf("%T: %v", into, err)
	}
}

// TestKubernetesSelectsItsPods is selectsItsPods for deploy/kubernetes.
func TestKubernetesSelectsItsPods(t *testing.T) { selectsItsPods(t, load(t)) }

// TestKubernetesStartsWithItsSettings is startsWithItsSettings for deploy/kubernetes.
func TestKubernetesStartsWithItsSettings(t *testing.T) { startsWithItsSettings(t, load(t)) }

// selectsItsPods checks that all selectors match the pods of the set, and that ports and the
// service that names the pods exist.
func selectsItsPods(t *testing.T, m *manifests) {
	t.Helper()
	pods := labels.Set(m.set.Spec.Template.Labels)
	selectors := map[string]map[string]string{
		"set":        m.set.Spec.Selector.MatchLabels,
		"disruption": m.disruption.Spec.Selector.MatchLabels,
		"network":    m.network.Spec.PodSelector.MatchLabels,
	}
	ports := map[string]bool{}
	for _, p := range m.set.Spec.Template.Spec.Containers[0].Ports {
		ports[p.Name] = true
	}
	for name, s := range m.services {
		selectors["service "+name] = s.Spec.Selector
		for _, p := range s.Spec.Ports {
			if !ports[p.TargetPort.StrVal] {
				t.Errorf("service %s: the pods have no port %q", name, p.TargetPort.StrVal)
			}
		}
	}
	for name, selector := range selectors {
		if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(pods) {
			t.Errorf("%s selects %v, the pods are %v", name, selector, pods)
		}
	}
	nodes, ok := m.services[m.set.Spec.ServiceName]
	if !ok || nodes.Spec.ClusterIP != corev1.ClusterIPNone || !nodes.Spec.PublishNotReadyAddresses {
		t.Errorf("the pods get no names from %q before they are ready", m.set.Spec.ServiceName)
	}
}

// startsWithItsSettings checks that twotier accepts the settings, that the files in them are
// mounted, and that the pod has enough time to stop. It returns the settings.
func startsWithItsSettings(t *testing.T, m *manifests) settings {
	t.Helper()
	pod := m.set.Spec.Template.Spec
	container := pod.Containers[0]
	var environ []string
	for _, v := range container.Env {
		value := v.Value
		if v.ValueFrom != nil {
			value = map[string]string{"metadata.name": "twotier-0", "status.podIP": "10.0.0.1"}[v.
				ValueFrom.FieldRef.FieldPath]
		}
		value = strings.ReplaceAll(value, "$(POD_IP)", "10.0.0.1")
		environ = append(environ, v.Name+"="+value)
		for _, mount := range container.VolumeMounts {
			if strings.HasPrefix(value, "/") && strings.HasPrefix(value, mount.MountPath+"/") {
				value = ""
			}
		}
		if strings.HasPrefix(value, "/") {
			t.Errorf("%s: nothing is mounted at %s", v.Name, value)
		}
	}
	used := accepted(t, environ)
	needs := used.stopping(t).Seconds()
	if has := *pod.TerminationGracePeriodSeconds; float64(has) <= needs {
		t.Errorf("the pod has %d s for stopping, which takes up to %v", has, needs)
	}
	if !*pod.SecurityContext.RunAsNonRoot || !*container.SecurityContext.ReadOnlyRootFilesystem {
		t.Error("it may run as root or write")
	}
	return used
}

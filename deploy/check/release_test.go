package check

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
)

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
	if err != nil {
		t.Fatal(err)
	}
	if err := packed.Validate(); err != nil {
		t.Error(err)
	}
	if m := packed.Metadata; m.Version != "1.2.3-rc.1+build" || m.AppVersion != "1.2.3-rc.1-build" {
		t.Errorf("the chart's version is %s, the program's %s", m.Version, m.AppVersion)
	}
	got, err := renderChart(packed, "shop", secrets)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := loader.LoadDir(filepath.Join("..", "helm"))
	if err != nil {
		t.Fatal(err)
	}
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

package deploytest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// program is the command under test.
var program = proctest.NewProgram()

func TestMain(m *testing.M) { proctest.Main(m, program, 0) }

// top returns the path of a file of this module.
func top(parts ...string) string {
	return filepath.Join(append([]string{"..", "..", ".."}, parts...)...)
}

// read returns the text of a file of this module.
func read(t *testing.T, parts ...string) string {
	t.Helper()
	return must.Read(t, top(parts...))
}

// need returns the path of a program, or skips the test if there is none.
func need(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("there is no %s on this machine", name)
	}
	return path
}

// run runs a program, which must succeed, and returns its output.
func run(t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(need(t, name), args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// alert is one rule of deploy/prometheus/alerts.yaml.
type alert struct {
	Alert, Expr string
	Annotations map[string]string
}

// alerts returns the rules.
func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alert } }
	err := yaml.Unmarshal([]byte(read(t, "deploy", "prometheus", "alerts.yaml")), &file)
	if err != nil || len(file.Groups) != 1 || len(file.Groups[0].Rules) == 0 {
		t.Fatalf("no alerts: %v", err)
	}
	return file.Groups[0].Rules
}

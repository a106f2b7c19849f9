package deploytest

import (
	"os"
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

// TestSystemdUnit lets systemd check the unit: that it knows every setting, and that the process
// has few permissions beyond its work (exposure 2 of 10 or less). twotier accepts the configuration
// that goes with it.
func TestSystemdUnit(t *testing.T) {
	analyze := need(t, "systemd-analyze")
	unit := strings.ReplaceAll(read(t, "deploy", "systemd", "twotier.service"),
		"/usr/local/bin/twotier", program.Path(t))
	path := must.File(t, "twotier.service", unit)
	if out := run(t, "", analyze, "verify", path); out != "" {
		t.Errorf("systemd says:\n%s", out)
	}
	run(t, "", analyze, "security", "--offline=true", "--threshold=20", path)
	serve := exec.Command(program.Path(t), "serve", "--print-config", "--config",
		top("deploy", "systemd", "twotier.yaml"))
	serve.Env = append(os.Environ(), "TWOTIER_TOKENS=tokens", "TWOTIER_CLUSTER_SECRET_FILE=secret")
	if out, err := serve.CombinedOutput(); err != nil {
		t.Errorf("refused: %v\n%s", err, out)
	}
}

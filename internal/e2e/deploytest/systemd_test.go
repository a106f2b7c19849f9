package deploytest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
)

// TestSystemdUnit lets systemd check the unit: that it knows every setting, and that the process
// has few permissions beyond its work (exposure 2 of 10 or less). twotier accepts the configuration
// that goes with it.
func TestSystemdUnit(t *testing.T) {
	analyze := need(t, "systemd-analyze")
	unit := strings.ReplaceAll(read(t, "deploy", "systemd", "twotier.service"),
		"/usr/local/bin/twotier", program.Path(t))
	path := must.File(t, "twotier.service", unit)
	socket := filepath.Join(filepath.Dir(path), "twotier.socket")
	must.Write(t, socket, read(t, "deploy", "systemd", "twotier.socket"))
	if out := run(t, "", analyze, "verify", path, socket); out != "" {
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

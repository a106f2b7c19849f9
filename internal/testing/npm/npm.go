package npm

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
)

// Install returns a copy of a directory that has a package.json with its lock, with the packages
// installed. It skips the test if this machine has no Node.js, or if npm can't get the packages.
func Install(t *testing.T, from string) (dir string) {
	t.Helper()
	for _, name := range []string{"node", "npm"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("frameworks: there is no %s on this machine", name)
		}
	}
	dir = t.TempDir()
	must.Succeed(t, os.CopyFS(dir, os.DirFS(from)))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("frameworks: npm can't install them: %v: %.300s", err, out)
	}
	return dir
}

package clustertest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/faultproxy"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// clientRules are the rules that the tests of the clients name.
const clientRules = `rules:
- {name: devices, distinct: 1/24h}
- {name: watched, distinct: 1/24h, state: shadow}
`

// TestClients runs the tests of the clients in other languages against a server that loses some of
// its answers, and one behind a proxy that has mishaps.
func TestClients(t *testing.T) {
	for name, c := range map[string]struct {
		dir  string
		args func(address string) []string
	}{
		"python3": {"python", func(a string) []string { return []string{"test_twotier.py", a} }},
		"node": {"node", func(string) []string {
			return []string{"--test", "twotier.test.mjs", "cluster.test.mjs", "middleware.test.mjs"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			interpreter, err := exec.LookPath(name)
			if err != nil {
				t.Skipf("there is no %s on this machine", name)
			}
			rules := must.File(t, "rules.yaml", clientRules)
			server := program.Serve(t, proctest.Options{}, "--rules", rules).Listen
			p := faultproxy.NewRaw(t, server)
			var lost []<-chan struct{}
			for _, match := range []string{" lost", " astray", " held", "1357}", `"77m"`} {
				lost = append(lost, p.SwallowMatching(match, 1, true))
			}
			p.SwallowMatching(" vanished", 1000, true)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, interpreter, c.args(p.Addr())...)
			cmd.Dir = filepath.Join("..", "..", "..", "clients", c.dir)
			cmd.Env = append(os.Environ(), "TWOTIER="+p.Addr(), "PYTHONDONTWRITEBYTECODE=1",
				"TWOTIER_BEHIND_A_PROXY="+faultproxy.Mishaps(t, server))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for i := range lost {
				select {
				case <-lost[i]:
				default:
					t.Errorf("answer %d was not lost", i)
				}
			}
		})
	}
}

// TestForkedClients runs the tests of the Python client and its middleware in processes that fork,
// in threads, in event loops and in greenlets.
func TestForkedClients(t *testing.T) {
	const none = "there is no python3 on this machine"
	const missing = "no python3 has gunicorn and gevent (Debian: gunicorn python3-gevent)"
	for name, c := range map[string]struct {
		modules, missing string // modules that the tests need
		args             []string
	}{
		"fork": {"os", none, []string{"test_fork.py", "Fork", "PreForkServer.test_threads"}},
		"gunicorn": {"gunicorn, gevent", missing,
			[]string{"test_fork.py", "PreForkServer.test_gunicorn"}},
		"concurrent": {"os", none, []string{"test_concurrent.py", "Concurrent"}},
		"gevent":     {"gunicorn, gevent", missing, []string{"test_concurrent.py", "Greenlets"}},
		"middleware": {"os", none, []string{"test_middleware.py"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			python := findPython(t, c.modules)
			if python == "" {
				t.Skip(c.missing)
			}
			server := program.Serve(t, proctest.Options{}).Listen
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, python, c.args...)
			cmd.Dir = filepath.Join("..", "..", "..", "clients", "python")
			cmd.Env = append(os.Environ(), "TWOTIER="+server, "PYTHONDONTWRITEBYTECODE=1")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

// findPython returns a Python that has some modules, or "".
func findPython(t *testing.T, modules string) string {
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.CommandContext(t.Context(), python, "-c", "import "+modules).Run() == nil {
			return python
		}
	}
	return ""
}

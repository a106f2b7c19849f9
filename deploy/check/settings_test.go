package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
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
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
		total += d
	}
	return total
}

package releasetest

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
)

// root is the absolute path of this module.
var root = func() string {
	path, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		panic(err)
	}
	return path
}()

var longFlag = flag.Bool("long", false, "make and install packages, too: nfpm takes minutes")

func TestMain(m *testing.M) {
	status := m.Run()
	_ = os.RemoveAll(built.dir) // "" removes nothing
	os.Exit(status)
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

// shell is a shell in a folder.
type shell struct {
	dir     string
	environ []string // added to this process's
}

// try runs a script, which ends with its first command that fails, and returns its output.
func (s shell) try(t *testing.T, script string) (string, error) {
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", script)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), s.environ...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run is try, but ends the test if the script fails.
func (s shell) run(t *testing.T, script string) string {
	t.Helper()
	out, err := s.try(t, script)
	if err != nil {
		t.Fatalf("%s\n%v\n%s", script, err, out)
	}
	return out
}

// page returns the commands of a section of docs/install.md, for this machine's architecture.
func page(t *testing.T, section string) string {
	t.Helper()
	_, text, ok := strings.Cut(must.Read(t, filepath.Join(root, "docs", "install.md")),
		"\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	_, text, block := strings.Cut(text, "\n```sh\n")
	text, _, end := strings.Cut(text, "\n```\n")
	if !ok || !block || !end {
		t.Fatalf("docs/install.md has no commands in the section %s", section)
	}
	return archNames().Replace(text) + "\n"
}

// tested lists the sections of docs/install.md whose commands the tests of this package run.
var tested = []string{"From the sources", "Archives", "Debian and Ubuntu", "Fedora and RHEL", "Go",
	"Node.js", "Python"}

// TestEveryBlockIsRun: each block of commands is the only one of a section that a test runs.
func TestEveryBlockIsRun(t *testing.T) {
	for _, section := range tested {
		page(t, section)
	}
	text := must.Read(t, filepath.Join(root, "docs", "install.md"))
	if n := strings.Count(text, "\n```") / 2; n != len(tested) {
		t.Errorf("docs/install.md has %d blocks, and tests run %d", n, len(tested))
	}
}

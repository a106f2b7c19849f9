package proctest

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Program is the command twotier. The first test that needs it builds it.
type Program struct {
	path  string // "" until it is built
	dir   string // where it is built; "" for a new directory, which Main removes
	from  string // the directory of the module; "" is this one's
	flags []string
	once  sync.Once
	err   error
}

// NewProgram returns the program of this module, built with further flags of go build, for example
// -race. Pass it to [Main].
func NewProgram(flags ...string) *Program { return &Program{flags: flags} }

// NewProgramFrom is NewProgram for one test, from the source tree in a directory ("" is this
// module's).
func NewProgramFrom(t testing.TB, source string, flags ...string) *Program {
	return &Program{dir: t.TempDir(), from: source, flags: flags}
}

// ProgramAt returns an existing program.
func ProgramAt(path string) *Program { return &Program{path: path} }

// Path returns the path of the program. The first call builds it, unless it exists already.
func (p *Program) Path(t testing.TB) string {
	t.Helper()
	p.once.Do(func() {
		if p.path == "" {
			p.path, p.err = p.build()
		}
	})
	if p.err != nil {
		t.Fatal(p.err)
	}
	return p.path
}

func (p *Program) build() (path string, err error) {
	if p.dir == "" {
		if p.dir, err = os.MkdirTemp("", "proctest"); err != nil {
			return "", err
		}
	}
	path = filepath.Join(p.dir, "twotier")
	args := append([]string{"build", "-buildvcs=false", "-ldflags=-s", "-o", path}, p.flags...)
	cmd := exec.Command(cmp.Or(os.Getenv("GO"), "go"),
		append(args, "twotier.dev/twotier/cmd/twotier")...)
	cmd.Dir = p.from
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
}

// Main is the TestMain of a package that runs a program: it runs the tests, at most so many of them
// in parallel (0: the default of go test), and removes the program. The bound is independent of the
// number of processors, because most such tests wait most of the time.
func Main(m *testing.M, p *Program, together int) {
	flag.Parse()
	if together > 0 {
		if err := flag.Set("test.parallel", strconv.Itoa(together)); err != nil {
			panic(err)
		}
	}
	status := m.Run()
	if err := os.RemoveAll(p.dir); err != nil { // "" removes nothing
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}

// aloneVariable has the path of the program in a process that MainAlone has started.
const aloneVariable = "PROCTEST_ALONE"

// MainAlone is Main in a network namespace with nothing but loopback, where this machine permits
// it: a browser gives up its requests whenever an interface comes or goes, and other tests make
// some. The program is built before that, because the build may have to download modules.
func MainAlone(m *testing.M, p *Program, together int) {
	const run = `ip link set lo up && exec "$0" "$@"`
	if path := os.Getenv(aloneVariable); path != "" {
		if p.path = path; strings.HasPrefix(filepath.Base(filepath.Dir(path)), "proctest") {
			p.dir = filepath.Dir(path) // which Main removes
		}
	} else if unshare, err := exec.LookPath("unshare"); err == nil &&
		exec.Command(unshare, "--net", "ip", "link", "set", "lo", "up").Run() == nil {
		if path, err = p.build(); err == nil {
			err = syscall.Exec(unshare, append([]string{"unshare", "--net", "sh", "-c", run},
				os.Args...), append(os.Environ(), aloneVariable+"="+path))
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	Main(m, p, together)
}

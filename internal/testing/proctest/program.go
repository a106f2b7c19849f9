package proctest

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

// Program is the command twotier. The first test that needs it builds it; [Main] removes it.
type Program struct {
	path  string // "" until it is built
	from  string // the directory of the module; "" is this one's
	flags []string
	once  sync.Once
	err   error
}

// built holds the directories of all programs that this test binary has built.
var built struct {
	sync.Mutex
	dirs []string
}

// NewProgram returns the program of this module, built with further flags of go build, for example
// -race.
func NewProgram(flags ...string) *Program { return &Program{flags: flags} }

// NewProgramFrom is NewProgram for another source tree of the module, in a directory.
func NewProgramFrom(source string) *Program { return &Program{from: source} }

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
	dir, err := os.MkdirTemp("", "proctest")
	if err != nil {
		return "", err
	}
	built.Lock()
	built.dirs = append(built.dirs, dir)
	built.Unlock()
	path = filepath.Join(dir, "twotier")
	args := append([]string{"build", "-buildvcs=false", "-o", path}, p.flags...)
	cmd := exec.Command(cmp.Or(os.Getenv("GO"), "go"),
		append(args, "twotier.dev/twotier/cmd/twotier")...)
	cmd.Dir = p.from
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
}

// Main is the TestMain of a package that runs programs: it runs the tests, at most so many of them
// in parallel (0: the default of go test), and removes the programs that they have built. The bound
// is independent of the number of processors, because most such tests wait most of the time.
func Main(m *testing.M, together int) {
	flag.Parse()
	if together > 0 {
		if err := flag.Set("test.parallel", strconv.Itoa(together)); err != nil {
			panic(err)
		}
	}
	status := m.Run()
	for _, dir := range built.dirs {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(status)
}

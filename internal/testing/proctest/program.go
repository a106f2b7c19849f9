package proctest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Program is the command twotier. Make one with [NewProgram] in TestMain, and call Remove when all
// tests have run.
type Program struct {
	path  string // "" until it is built
	dir   string
	from  string   // the directory of the module; "" is this one's
	flags []string // of go build
	once  sync.Once
	err   error
}

// NewProgram returns the program of this module, with or without the race detector. The first test
// that needs it builds it.
func NewProgram(race bool) (*Program, error) {
	if race {
		return NewProgramWith("-race")
	}
	return NewProgramWith()
}

// NewProgramWith is NewProgram with flags of go build.
func NewProgramWith(flags ...string) (*Program, error) {
	dir, err := os.MkdirTemp("", "proctest")
	return &Program{dir: dir, flags: flags}, err
}

// NewProgramFrom is NewProgram for another source tree of the module, in a directory.
func NewProgramFrom(source string) (*Program, error) {
	p, err := NewProgramWith()
	p.from = source
	return p, err
}

// ProgramAt returns an existing program.
func ProgramAt(path string) *Program { return &Program{path: path} }

// Remove removes the built program.
func (p *Program) Remove() error { return os.RemoveAll(p.dir) }

// Path returns the path of the program. The first call builds it, unless it exists already.
func (p *Program) Path(t testing.TB) string {
	t.Helper()
	if p.path != "" {
		return p.path
	}
	path := filepath.Join(p.dir, "twotier")
	p.once.Do(func() {
		goTool := os.Getenv("GO")
		if goTool == "" {
			goTool = "go"
		}
		args := append([]string{"build", "-buildvcs=false", "-o", path}, p.flags...)
		build := exec.Command(goTool, append(args, "twotier.dev/twotier/cmd/twotier")...)
		build.Dir = p.from
		if out, err := build.CombinedOutput(); err != nil {
			p.err = fmt.Errorf("build: %w\n%s", err, out)
		}
	})
	if p.err != nil {
		t.Fatal(p.err)
	}
	return path
}

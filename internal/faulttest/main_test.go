package faulttest

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// together is how many tests run at a time, however few processors there are: most of them wait most of the time.
const together = "8"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", together); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "faulttest")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	build.dir = dir
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

// build is the program under test, built by the first test that needs it.
var build struct {
	once sync.Once
	dir  string
	err  error
}

// program returns the path of twotier.
func program(t testing.TB) string {
	t.Helper()
	path := filepath.Join(build.dir, "twotier")
	build.once.Do(func() {
		goTool := os.Getenv("GO")
		if goTool == "" {
			goTool = "go"
		}
		args := []string{"build", "-buildvcs=false", "-o", path}
		if raceEnabled {
			args = append(args, "-race")
		}
		if out, err := exec.Command(goTool, append(args, "twotier/cmd/twotier")...).CombinedOutput(); err != nil {
			build.err = fmt.Errorf("build: %w\n%s", err, out)
		}
	})
	if build.err != nil {
		t.Fatal(build.err)
	}
	return path
}

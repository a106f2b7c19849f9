package faulttest

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"twotier.dev/twotier/internal/testing/proctest"
)

// together is how many tests run in parallel. It is independent of the number of processors,
// because most tests wait most of the time.
const together = "8"

func TestMain(m *testing.M) {
	flag.BoolVar(&build.long, "long", false, "run what takes long, too")
	flag.Parse()
	if err := flag.Set("test.parallel", together); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	program, err := proctest.NewProgram(raceEnabled)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	build.program = program
	status := m.Run()
	if err := program.Remove(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}

// build holds the program under test, and whether to run the tests that take long.
var build struct {
	program *proctest.Program
	long    bool
}

// measuresMemory skips a test under the race detector, which needs a multiple of the memory.
func measuresMemory(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("measures memory: make test and make faults run it, without the race detector")
	}
}

// takesLong skips a test that waits for more than some ten seconds, unless -long is set.
func takesLong(t *testing.T) {
	t.Helper()
	if !build.long {
		t.Skip("takes long: make check runs it, with -long")
	}
}

package clustertest

import (
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"twotier.dev/twotier/internal/testing/proctest"
)

// together is how many tests run in parallel. It is independent of the number of processors,
// because most tests wait most of the time.
const together = "6"

func TestMain(m *testing.M) {
	flag.BoolVar(&chosen.long, "long", false, "run what takes minutes, too")
	flag.BoolVar(&chosen.curve, "curve", false,
		"measure all points of the curve of the excess across a split (minutes)")
	flag.IntVar(&chosen.runs, "runs", 1,
		"how often to measure how long failures take to be noticed")
	flag.IntVar(&chosen.starts, "starts", 4,
		"with -long, how often to start all nodes at the same time while something happens")
	flag.Parse()
	err := flag.Set("test.parallel", together)
	if err == nil {
		// Without the race detector: other tests run the program with it, and these tests are about
		// the behaviour of processes.
		chosen.program, err = proctest.NewProgram(false)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	if err := chosen.program.Remove(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}

// chosen holds the flags of the test binary and the program under test.
var chosen struct {
	long, curve bool
	runs        int
	starts      int
	program     *proctest.Program
	labs        atomic.Int32 // the number made so far
}

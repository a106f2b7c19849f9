package clustertest

import (
	"flag"
	"sync/atomic"
	"testing"

	"twotier.dev/twotier/internal/testing/proctest"
)

var (
	longFlag  = flag.Bool("long", false, "run what takes minutes, too")
	curveFlag = flag.Bool("curve", false,
		"measure all points of the curve of the excess across a split (minutes)")
	runsFlag   = flag.Int("runs", 1, "how often to measure how long failures take to be noticed")
	startsFlag = flag.Int("starts", 4,
		"with -long, how often to start all nodes at the same time while something happens")
)

// program is the program under test. It has no race detector: other tests run it with that, and
// these tests are about the behaviour of processes.
var program = proctest.NewProgram()

// labs is the number of labs made so far.
var labs atomic.Int32

// takesLong skips a test that takes the processors half a minute or more, unless -long is set.
func takesLong(t *testing.T) {
	t.Helper()
	if !*longFlag {
		t.Skip("takes long: make long runs it, with -long")
	}
}

func TestMain(m *testing.M) { proctest.Main(m, program, 6) }

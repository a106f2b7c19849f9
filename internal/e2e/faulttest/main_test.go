package faulttest

import (
	"flag"
	"fmt"
	"testing"

	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/race"
)

var longFlag = flag.Bool("long", false, "run what takes long, too")

// program is the program under test, under the race detector if the tests are.
var program = proctest.NewProgram(fmt.Sprint("-race=", race.Enabled))

func TestMain(m *testing.M) { proctest.Main(m, program, 8) }

// measuresMemory skips a test under the race detector, which needs a multiple of the memory.
func measuresMemory(t *testing.T) {
	t.Helper()
	if race.Enabled {
		t.Skip("measures memory: make check runs it, without the race detector")
	}
}

// takesLong skips a test that waits for more than some ten seconds, unless -long is set.
func takesLong(t *testing.T) {
	t.Helper()
	if !*longFlag {
		t.Skip("takes long: make long runs it, with -long")
	}
}

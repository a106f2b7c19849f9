package simtest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

var (
	seedFlag      = flag.Uint64("seed", 0, "run the schedule with this seed only")
	schedulesFlag = flag.Int("schedules", 40, "number of schedules to run")
	kindFlag      = flag.String("kind", "", "run schedules of this kind only: "+kindNames())
)

// failedOnce are seeds that found something.
var failedOnce = []uint64{625453728975, 799809242206}

// TestMain has the collector run less often, up to a bound: what a schedule leaves behind in pools goes with the second run.
func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(800)
	debug.SetMemoryLimit(1 << 30)
	os.Exit(m.Run())
}

// TestSchedules runs random schedules. What a seed decides is the same each time, but for the order in which things that happen at
// the same moment happen.
func TestSchedules(t *testing.T) {
	if *seedFlag != 0 {
		synctest.Test(t, func(t *testing.T) { run(t, *seedFlag, true) })
		return
	}
	schedules := *schedulesFlag
	if testing.Short() {
		schedules /= 10
	}
	first := rand.Uint64N(1 << 40)
	var (
		sum    totals
		failed atomic.Bool
	)
	t.Cleanup(func() { t.Log(sum.String()) })
	for i := range schedules + len(failedOnce) {
		seed := first + uint64(i) + 1
		if i < len(failedOnce) {
			seed = failedOnce[i]
		}
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			if failed.Load() {
				return
			}
			defer func() { // a bubble that fails ends the goroutine
				if t.Failed() {
					failed.Store(true)
					t.Logf("repeat with -run TestSchedules -seed=%d", seed)
				}
			}()
			synctest.Test(t, func(t *testing.T) { sum.add(run(t, seed, false)) })
		})
	}
}

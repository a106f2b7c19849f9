package simtest

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/internal/testing/seed"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run the schedule with this seed only")
	firstFlag = flag.Uint64("first", 0,
		"seed of the first schedule, which the others follow; 0 picks one")
	schedulesFlag = flag.Int("schedules", 0,
		"number of schedules to run; 0: 40, or 10 under the race detector")
	kindFlag   = flag.String("kind", "", "run schedules of this kind only: "+kindNames())
	hotFlag    = flag.Bool("hot", false, "run schedules with hot keys only")
	rulesFlag  = flag.Bool("rules", false, "also change the rules, acquire by them, and ban")
	valuesFlag = flag.Bool("distinct", false, "also add and count distinct values")
	holdsFlag  = flag.Bool("holds", false,
		"also acquire with holds in all schedules, not only in a quarter of them, by seed")
	mixedFlag = flag.Bool("mixed", false,
		"-rules for a quarter of the schedules, -distinct for an eighth, by seed")
	failuresFlag = flag.Int("failures", 1, "begin no schedule after so many have failed")
	limitFlag    = flag.Duration("limit", 0, "begin no schedule after so long; 0: no limit")
)

// TestMain makes the garbage collector run less often, up to a bound: the second run frees the
// garbage that a schedule leaves in pools.
func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(800)
	debug.SetMemoryLimit(1 << 30)
	os.Exit(m.Run())
}

// TestSchedules runs random schedules. A seed always gives the same schedule, except for the order
// of events at the same moment.
func TestSchedules(t *testing.T) {
	if *seedFlag != 0 {
		synctest.Test(t, func(t *testing.T) { run(t, *seedFlag, true) })
		return
	}
	first := *firstFlag
	if first == 0 {
		first = seed.First()
	}
	b := &batch{began: time.Now()}
	began := first
	t.Cleanup(func() {
		t.Logf("%s", b.sum.String())
		t.Logf("seeds from %d: %d of %d schedules ran, %d failed, in %.0f s", began, b.ran.Load(),
			schedules(), b.failed.Load(), time.Since(b.began).Seconds())
	})
	for left := schedules(); left > 0; left -= piece {
		b.run(t, seeds(first, min(left, piece)))
		first += piece
	}
}

// schedules returns how many schedules to run.
func schedules() int {
	switch {
	case *schedulesFlag > 0:
		return *schedulesFlag
	case race.Enabled || testing.Short():
		return 10
	default:
		return 40
	}
}

// piece is how many schedules are started as subtests at a time, because package testing starts all
// given subtests.
const piece = 100

func seeds(first uint64, n int) (list []uint64) {
	for i := range n {
		list = append(list, first+uint64(i))
	}
	return list
}

// batch runs schedules, as many at a time as there are processors.
type batch struct {
	began       time.Time
	sum         totals
	ran, failed atomic.Int64
}

// over reports whether to start no more schedules.
func (b *batch) over() bool {
	return b.failed.Load() >= int64(*failuresFlag) ||
		*limitFlag > 0 && time.Since(b.began) > *limitFlag
}

// run runs the schedules with these seeds.
func (b *batch) run(t *testing.T, list []uint64) {
	if b.over() {
		return
	}
	t.Run(fmt.Sprint("from=", list[0]), func(t *testing.T) {
		for _, seed := range list {
			t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
				t.Parallel()
				b.one(t, seed)
			})
		}
	})
}

func (b *batch) one(t *testing.T, seed uint64) {
	if b.over() {
		return
	}
	defer func() { // if a bubble fails, its goroutine ends
		b.ran.Add(1)
		if t.Failed() {
			b.failed.Add(1)
			t.Logf("repeat with -run TestSchedules -seed=%d", seed)
		}
	}()
	synctest.Test(t, func(t *testing.T) { b.sum.add(run(t, seed, false)) })
}

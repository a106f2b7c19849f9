package simtest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/internal/testing/seed"
	"twotier.dev/twotier/internal/testing/simnet"
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

// plan holds the choices that a seed makes for a whole schedule.
type plan struct {
	kind       kind
	nodes      int
	partitions int
	interval   time.Duration // between flushes
	lanes      int           // number of each kind
	lag        time.Duration // maximum age of unflushed counts, or 0
	pause      time.Duration // between requests of a client, on average
	length     time.Duration // of the time with faults
	skew       time.Duration // between clocks
	weather    simnet.Weather
	mix        faultstore.Mix
	takes      time.Duration // maximum time for a message to or from Redis
	ladders    int           // how many different ones the nodes have
	hotRate    float64
	verify     time.Duration // how often idle partitions are verified; 0: every second
	patient    bool          // all clients wait for two seconds
	rules      bool          // clients change the rules, acquire by them, and ban
	values     bool          // clients add distinct values
	holds      bool          // clients hold, settle and renew, and read calendar windows
	oneSeed    bool          // all nodes join at the address of the first one
	exact      bool          // every node can always be reached, so no decision may exceed a limit
}

// kind is a family of schedules.
type kind int

const (
	graceful     kind = iota // joins and leaves
	crashes                  // kills and restarts
	splits                   // cuts of the network
	outages                  // Redis down, slow, lossy
	modes                    // mode changes, while nodes come, go and lose Redis
	everything               // all of the above, one after another
	losses                   // Redis loses all or goes back in time; the owner of a key knows it
	together                 // several joins and leaves at once
	handloss                 // like together, while Redis loses data
	chaos                    // several faults of any kind at once, but no losses
	ruins                    // like chaos, with losses
	moves                    // like together, with many partitions, most of which Redis lacks
	restarts                 // kills, after which another process starts at the same address
	delays                   // connections that are late, while clients have little patience
	stalls                   // processes that stand still
	replacements             // nodes that join at one address stop and start, one by one
	kinds
)

var names = [kinds]string{
	"graceful", "crashes", "splits", "outages", "modes", "everything", "losses", "together",
	"handloss", "chaos", "ruins", "moves", "restarts", "delays",
	"stalls", "replacements",
}

func (k kind) String() string { return names[k] }

func kindNames() string { return strings.Join(names[:], ", ") }

// is reports whether the kind is one of these.
func (k kind) is(list ...kind) bool {
	for _, o := range list {
		if k == o {
			return true
		}
	}
	return false
}

// orderly kinds never have a node that another can't reach.
func (k kind) orderly() bool {
	return k.is(graceful, outages, modes, together, moves, replacements)
}

// changes reports whether the mode changes.
func (k kind) changes() bool { return k.is(modes, everything, moves) || k.wild() }

// loses reports whether Redis loses data.
func (k kind) loses() bool { return k.is(losses, handloss, ruins) }

// parts reports whether a node may be unreachable for longer than others try to determine the
// outcome of an acquire over several owners.
func (p *plan) parts() bool {
	return p.kind.is(splits, everything, delays, stalls) || p.kind.wild()
}

// restoresOthers reports whether a key that Redis loses may be restored by a node that does not
// decide about it.
func (p *plan) restoresOthers() bool { return p.kind == ruins || p.kind.loses() && p.hotRate > 0 }

// wild kinds have several faults of any kind at once.
func (k kind) wild() bool { return k.is(chaos, ruins) }

// stale returns the maximum age of another node's count that a node does not know: it learns of the
// count with its next verification after the other has flushed it. If Redis loses data, the nodes
// must notice that first, and restore.
func (p *plan) stale() time.Duration {
	stale := 5*time.Second + 3*p.interval
	if p.kind.loses() {
		stale *= 2
	}
	return stale
}

func newPlan(rnd *rand.Rand) plan {
	p := plan{
		kind: kind(rnd.IntN(int(kinds))), nodes: 3 + rnd.IntN(3), partitions: 5 + rnd.IntN(20),
		interval: time.Duration(10+rnd.IntN(300)) * time.Millisecond,
		pause:    time.Duration(20+rnd.IntN(100)) * time.Millisecond,
		length:   time.Duration(10+rnd.IntN(20)) * time.Second,
		skew:     time.Duration(rnd.IntN(200)) * time.Millisecond,
	}
	for k := range kinds {
		if *kindFlag == k.String() {
			p.kind = k
		}
	}
	if rnd.IntN(4) == 0 || *hotFlag {
		p.hotRate = 20 // every sampled key is hot, as the sample is small
	}
	p.exact = p.kind.orderly()
	p.drawWeather(rnd)
	p.drawStore(rnd)
	p.lanes = 1 + p.partitions%2 // drawing a random number would change all schedules
	p.oneSeed = p.kind == replacements || p.partitions/2%2 == 0
	p.ladders = 1 + rnd.IntN(3)
	if rnd.IntN(3) == 0 {
		p.lag = 1 << rnd.IntN(12) * time.Millisecond
	}
	p.drawSize(rnd)
	return p
}

// drawSize decides how many partitions there are, and how long Redis lacks their counts.
func (p *plan) drawSize(rnd *rand.Rand) {
	large, rare := 200+rnd.IntN(100), rnd.IntN(16) == 0
	if p.kind.is(modes, together) && p.lag == 0 && rnd.IntN(3) == 0 {
		p.interval = time.Duration(1000+rnd.IntN(3000)) * time.Millisecond
	}
	if p.kind == moves {
		p.interval, p.lag = time.Duration(2+rnd.IntN(14))*time.Second, 0
		p.weather.Jitter = time.Duration(1+rnd.IntN(100)) * time.Millisecond
	}
	if p.kind == moves || rare {
		p.partitions = large
	}
}

func (p *plan) drawWeather(rnd *rand.Rand) {
	p.weather = simnet.Weather{
		Broken: 10 * (p.partitions % 3),
		Delay:  time.Duration(100+rnd.IntN(3000)) * time.Microsecond,
		Jitter: time.Duration(1+rnd.IntN(5000)) * time.Microsecond,
	}
	if p.kind.is(splits, everything) || p.kind.wild() && rnd.IntN(2) == 0 {
		p.weather.PacketLoss = rnd.IntN(200)
		p.weather.CallLoss = rnd.IntN(20)
	}
}

// drawStore decides how good Redis is: without faults, with some, with many; and fast, moderate, or
// slow.
func (p *plan) drawStore(rnd *rand.Rand) {
	switch {
	case p.kind.is(graceful, together, moves) && rnd.IntN(4) == 0:
		p.mix = faultstore.Mix{ReplyLost: 250, RequestLost: 100, Refused: 50, Late: 50}
	case p.kind.is(outages, everything),
		!p.kind.is(crashes, splits, modes, moves) && rnd.IntN(2) == 0:
		p.mix = faultstore.Mix{ReplyLost: rnd.IntN(100), RequestLost: rnd.IntN(50),
			Refused: rnd.IntN(50), Late: rnd.IntN(50)}
	}
	switch rnd.IntN(6) {
	case 0, 1:
		p.takes = time.Duration(1+rnd.IntN(20)) * time.Millisecond
	case 2:
		// Less than a second in total, after which an exchange is aborted.
		p.takes = time.Duration(1+rnd.IntN(400)) * time.Millisecond
	}
}

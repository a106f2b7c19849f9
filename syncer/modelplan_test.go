package syncer_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/faultstore"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// plan holds a seed's decisions for a whole run.
type plan struct {
	levels  []leaparray.Level
	exact   int // events that keep their millisecond
	parts   int
	memory  int64 // 0: plenty
	lag     time.Duration
	mix     faultstore.Mix
	flushes bool // the store loses everything now and then
	rival   bool // another counter writes to the same store
	// rewinds makes the store go back in time. Then nothing is taken back or reset, because a
	// failover may lose that.
	rewinds bool
	// restarts makes the first counter start anew now and then; with weeks, a long time passes
	// between two operations.
	restarts, weeks bool

	ack    twotier.Ack
	onCold syncer.OnCold
	keys   int
	skewed bool // most keys are of one partition
	ops    int
}

func newPlan(rnd *rand.Rand) plan {
	p := plan{parts: 1 + rnd.IntN(3), keys: 6, ops: 250, onCold: syncer.OnColdDeny,
		levels: someLevels(rnd)}
	if rnd.IntN(4) == 0 {
		p.onCold = syncer.OnColdAllow
	}
	if rnd.IntN(4) > 0 {
		p.mix = faultstore.Mix{ReplyLost: rnd.IntN(200), RequestLost: rnd.IntN(100),
			Refused: rnd.IntN(100), Late: rnd.IntN(100), Hang: rnd.IntN(20)}
	}
	if rnd.IntN(8) == 0 {
		p.mix.KeyRefused = rnd.IntN(100)
	}
	if p.restarts, p.weeks = rnd.IntN(3) == 0, rnd.IntN(6) == 0; p.weeks {
		// Use only a few keys, none of which is idle for long.
		p.restarts, p.keys, p.ops, p.levels = true, 2, 400, narrowLevels(rnd)
	}
	switch rnd.IntN(5) {
	case 0:
		p.memory, p.keys = int64(p.parts)*(8<<10), 400*p.parts
		if p.skewed = rnd.IntN(2) == 0; p.skewed {
			p.parts, p.memory, p.keys, p.ops, p.levels = 4, 32<<10, 1500, 1200,
				leaparray.DefaultLevels()
		}
	case 1:
		p.flushes, p.restarts = true, false // counts that no memory holds would be gone
		p.rewinds = rnd.IntN(2) == 0
	case 2:
		p.rival = true
	}
	if rnd.IntN(5) == 0 {
		p.ack = twotier.AckStore
	}
	p.exact = []int{leaparray.DefaultExact, leaparray.DefaultExact, 5, 1, 0}[rnd.IntN(5)]
	p.lag = shortLag(rnd)
	return p
}

// shortLag returns no lag, or so little that there is room for a few keys, because an exchange
// takes no time.
func shortLag(rnd *rand.Rand) time.Duration {
	if rnd.IntN(3) > 0 {
		return 0
	}
	return 1 << rnd.IntN(8) * time.Microsecond
}

// someLevels returns the levels of a ladder: the default ones, a few small ones, or any valid ones.
func someLevels(rnd *rand.Rand) []leaparray.Level {
	switch rnd.IntN(5) {
	case 0:
		return leaparray.DefaultLevels()
	case 1:
		return []leaparray.Level{{Width: time.Second, Count: 10}}
	case 2:
		return []leaparray.Level{{Width: 100 * time.Millisecond, Count: 10},
			{Width: time.Second, Count: 7}, {Width: time.Minute, Count: 3}}
	}
	return anyLevels(rnd, 1<<(1+rnd.IntN(12)))
}

// narrowLevels returns the default levels, or levels with few buckets, all of which may be in use
// at some time.
func narrowLevels(rnd *rand.Rand) []leaparray.Level {
	if rnd.IntN(4) == 0 {
		return leaparray.DefaultLevels()
	}
	return anyLevels(rnd, 12)
}

// anyLevels draws a ladder with at most this many buckets per level.
func anyLevels(rnd *rand.Rand, most int) []leaparray.Level {
	for {
		levels := drawLevels(rnd, most)
		if _, err := leaparray.NewLadder(0, levels...); err == nil {
			return levels
		}
	}
}

func drawLevels(rnd *rand.Rand, most int) (levels []leaparray.Level) {
	width := leaparray.MinWidth + time.Duration(rnd.IntN(1000))*time.Millisecond
	for range 1 + rnd.IntN(leaparray.MaxLevels) {
		count := 1 + rnd.IntN(most)
		if most == leaparray.MaxBuckets && rnd.IntN(2) == 0 {
			count = most
		}
		levels = append(levels, leaparray.Level{Width: width, Count: count})
		width *= time.Duration(2 + rnd.IntN(20))
	}
	return levels
}

// takeBack takes back without a time, or at the time of an event no more than the event's count.
func (w *world) takeBack(key string, k *truth, op *twotier.Op) {
	if op.TS = 0; len(k.log) == 0 || k.taken || w.rnd.IntN(2) == 0 {
		n := op.Checks[0].N
		k.taken, op.Checks[0].N = true, -n
		if w.do(w.c, op, []string{key}, new(twotier.Result)) {
			k.takeNewest(n)
		}
		return
	}
	e := &k.log[w.rnd.IntN(len(k.log))]
	n := min(op.Checks[0].N, e.n)
	if n <= 0 || e.shaky || e.ts <= w.now()-w.ladder.Span() || e.ts > w.now() {
		return
	}
	op.TS, op.Checks[0].N = e.ts, -n
	if w.do(w.c, op, []string{key}, new(twotier.Result)) {
		e.n -= n
		k.buckets[w.coarse(e.ts)] -= n
	}
}

// takeNewest takes n from the newest buckets.
func (k *truth) takeNewest(n int64) {
	starts := slices.Sorted(maps.Keys(k.buckets))
	slices.Reverse(starts)
	for _, start := range starts {
		d := max(0, min(n, k.buckets[start]))
		k.buckets[start] -= d
		n -= d
	}
}

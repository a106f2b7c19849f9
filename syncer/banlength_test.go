package syncer_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// TestABanKeepsItsEnd when the rule has another length: a longer one revives no ban, and a shorter
// one ends none. This holds for bans in memory, and for those that another counter has loaded.
func TestABanKeepsItsEnd(t *testing.T) {
	for _, test := range []struct{ length, changed time.Duration }{
		{2 * time.Second, time.Hour}, {2 * time.Second, 24 * time.Hour},
		{time.Hour, 2 * time.Second}, {2 * time.Hour, 2 * time.Second},
		{24 * time.Hour, time.Minute}, {time.Hour, 24 * time.Hour},
	} {
		clk, store := &clock{now: t0 + 777}, embedded.New(embedded.Options{})
		c := open(t, syncer.Options{Now: clk.Now, Store: store})
		length, changed := test.length.Milliseconds(), test.changed.Milliseconds()
		op := banned("k", 2, length, 0, limits(1000, 1))
		res := do(t, c, op)
		end := res.Checks[1].Limits[0].Hi
		width := int64(1000)
		if test.length > time.Hour {
			width = 60_000
		}
		if end < clk.Now()+length || end >= clk.Now()+length+width {
			t.Fatalf("%+v: a ban of %d ms", test, end-clk.Now())
		}
		flush(t, c)
		other := open(t, syncer.Options{Now: clk.Now, Store: store})
		op = banned("k", 1, changed, 0, limits(1000, 1))
		op.DryRun = true
		for _, at := range []int64{t0 + 800, end - 1, end, end + 1000, end + 3_500_000} {
			clk.set(at)
			for of, c := range []*syncer.Counter{c, other} {
				if r := do(t, c, op).Checks[1]; r.Refused != (at < end) ||
					r.Refused && (r.Limits[0].Hi != end || r.RetryAfter != end-at) {
					t.Errorf("%+v: counter %d, %d ms before the end: %+v", test, of, end-at, r)
				}
			}
		}
	}
}

// TestBanEnds counts bans at random, of which some have no end, in two counters, and compares with
// the ends of all of them.
func TestBanEnds(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice, l := rand.New(rand.NewPCG(seed, 0)), syncer.BanLadder()
	for range 300 {
		v := leaparray.View{Ladder: l}
		now, want := int64(t0), int64(0)
		length := 1000 + dice.Int64N(2*3_600_000)
		for range dice.IntN(40) {
			now += 60_000 + dice.Int64N(60_000)
			n, own := [2]int64{1, 1}, 0
			if length > 3_600_000 {
				own = 1
			}
			width := l.Width(own)
			end := (now/width+1)*width + length - 1
			starts := int64(1)
			if dice.IntN(4) > 0 {
				one := 1000 + dice.Int64N(86_399_000)
				n, own = syncer.BanCounts(l, now, one), 0
				if one > 3_600_000 {
					own = 1
				}
				width = l.Width(own)
				end = (now+one)/width*width + width - 1
				starts += dice.Int64N(2) // two writers
			}
			want = max(want, end)
			for range starts {
				to := &v.A
				if dice.IntN(2) == 0 {
					to = &v.B
				}
				for level := range n {
					*to = addTo(l, *to, level, l.Index(level, now), n[level])
				}
			}
		}
		if got := syncer.BanEnd(v, length); max(got, now) != max(want, now) {
			t.Fatalf("ends at %d, want %d", got, want)
		}
	}
}

// addTo counts in a counter, which grows if it has to.
func addTo(l *leaparray.Ladder, c leaparray.Counter, level int, idx, n int64) leaparray.Counter {
	if len(c) > 0 {
		if _, ok := l.Add(c, level, idx, n); ok {
			return c
		}
	}
	c = l.Grow(c, leaparray.Heap{}, level, idx, n)
	l.Add(c, level, idx, n)
	return c
}

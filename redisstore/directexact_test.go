package redisstore_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
	"twotier.dev/twotier/syncer/storetest"
)

// TestLargeLimitsAreExact: a limit near 2^53 is reached exactly, and a larger one means 2^53-1, in
// both modes.
func TestLargeLimitsAreExact(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, redisstore.Options{URL: srv.URL()})
	clk := newClock(t0)
	direct := openDirect(t, redisstore.DirectOptions{Store: s, Now: clk.now.Load})
	large := []int64{1<<53 - 2, 1<<53 - 1, 1 << 53, 1<<53 + 1, 1 << 60, math.MaxInt64}
	for i := range large { // so that Redis lists the keys
		add(t, direct, fmt.Sprint("two-tier", i), 1, t0)
	}
	counter := openCounter(t, syncer.Options{Store: s, Now: clk.now.Load})
	for i, limit := range large {
		bound := min(limit, 1<<53-1)
		for mode, d := range map[string]doer{"two-tier": counter, "direct": direct} {
			key := fmt.Sprint(mode, i)
			srv.Do("DEL", s.Address(key))
			plant(t, srv, s.Address(key), at(1, t0, bound-2))
			for n := range int64(4) {
				res := acquire(t, d, check(key, 1, 60_000, limit))
				if got := res.Checks[0].Limits[0]; res.Allowed != (n < 2) ||
					got.Count != bound-2+min(n+1, 2) || got.Max != bound {
					t.Errorf("%s, limit %d, try %d: %+v", mode, limit, n, res)
				}
			}
		}
	}
}

// TestLargeCountsAreDecidedAlike fills buckets with counts of all sizes and asks in both modes
// about windows that end now or ended before. The verdicts are the same, and so are all counts that
// can be compared exactly.
func TestLargeCountsAreDecidedAlike(t *testing.T) {
	t.Parallel()
	dice := rand.New(rand.NewPCG(storetest.Seed(t), 8))
	srv := redistest.Start(t)
	l := ladderOf(t, shortLevels()...)
	s := open(t, redisstore.Options{URL: srv.URL(), Ladders: ladders(l)})
	clk := newClock(t0)
	direct := openDirect(t, redisstore.DirectOptions{Store: s, Now: clk.now.Load})
	other := openDirect(t, redisstore.DirectOptions{Store: s, Now: clk.now.Load, Writer: "other"})
	for i := range 60 { // so that Redis lists the keys
		add(t, other, fmt.Sprint("k", i), 1, t0)
	}
	counter := openCounter(t, syncer.Options{Store: s, Now: clk.now.Load,
		Namespaces: map[string]syncer.Namespace{"default": {Ladder: l}}})
	for i := range 60 {
		key := fmt.Sprint("k", i)
		var cells []syncer.Bucket
		for _, lv := range l.Levels() {
			for back := range int64(lv.Count) {
				n, width := dice.Int64N(1<<(1+dice.IntN(55))), lv.Width.Milliseconds()
				if dice.IntN(3) == 0 {
					continue
				}
				cells = append(cells, at(width, t0-back*width, n))
			}
		}
		plant(t, srv, s.Address(key), cells...)
		for range 20 {
			sum := int64(1) << (1 + dice.IntN(57))
			op := twotier.Op{Kind: twotier.Acquire, DryRun: true, TS: t0 - dice.Int64N(20_000),
				Checks: []twotier.Check{check(key, 1+dice.Int64N(5), 1+dice.Int64N(20_000),
					sum-3+dice.Int64N(6), 1+dice.Int64N(56_000), dice.Int64N(sum))}}
			ops, res := []twotier.Op{op, op}, make([]twotier.Result, 2)
			direct.DoAll(t.Context(), ops, res) // the second one reads the index of the first
			for j := range res {
				var want twotier.Result
				if err := counter.Do(t.Context(), &op, &want); (err == nil) != (res[j].Err == nil) {
					t.Fatalf("%+v: %v and %v", op, err, res[j].Err)
				} else if err != nil {
					continue
				}
				for k, lr := range want.Checks[0].Limits {
					got := &res[j].Checks[0].Limits[k]
					if got.Refused != lr.Refused || got.Count != lr.Count && lr.Count < 1<<53 ||
						want.RetryAfter != res[j].RetryAfter {
						t.Fatalf("%+v\ntwo-tier: %+v\ndirect:   %+v", op, want, res[j])
					}
				}
			}
		}
	}
}

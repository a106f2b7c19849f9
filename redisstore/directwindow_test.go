package redisstore_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
	"twotier.dev/twotier/syncer/storetest"
)

func shortLevels() []leaparray.Level {
	return []leaparray.Level{{Width: 100 * time.Millisecond, Count: 20},
		{Width: time.Second, Count: 20}, {Width: 7 * time.Second, Count: 8}}
}

// keep checks the limits of the key "k" in every window.
func (l exactLog) keep(t *testing.T, rules []twotier.Limit) {
	t.Helper()
	for _, rule := range rules {
		for _, e := range l {
			if n := l.within("k", e.ts-rule.Window+1, e.ts); n > rule.Max {
				t.Fatalf("%d ms hold %d events, the limit is %d", rule.Window, n, rule.Max)
			}
		}
	}
}

// TestDirectNeverExceedsTheLimit sends events in order and late ones, and looks for a window with
// more events than allowed.
func TestDirectNeverExceedsTheLimit(t *testing.T) {
	t.Parallel()
	dice := rand.New(rand.NewPCG(storetest.Seed(t), 3))
	d, clk := newDirect(t, shortLevels()...)
	rules := limits(1500, 8, 9_000, 20, 40_000, 50)
	var log exactLog
	admitted, refused := 0, 0
	for range 1500 {
		clk.now.Add(dice.Int64N(400) * dice.Int64N(2))
		ts := clk.now.Load()
		switch dice.IntN(4) {
		case 0:
			ts -= dice.Int64N(50_000)
		case 1:
			ts += dice.Int64N(2000)
		}
		op := twotier.Op{Kind: twotier.Acquire, TS: ts,
			Checks: []twotier.Check{{Key: []byte("k"), N: 1, Limits: rules}}}
		var res twotier.Result
		var invalid *twotier.InvalidError
		if err := d.Do(t.Context(), &op, &res); errors.As(err, &invalid) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		if !res.Allowed {
			refused++
			continue
		}
		admitted++
		log = append(log, counted{"k", ts, 1})
	}
	log.keep(t, rules)
	if admitted < 50 || refused < 50 {
		t.Errorf("%d admitted, %d refused: the test shows nothing", admitted, refused)
	}
}

// TestDirectRefusesNoMoreThanABucketEarly sends events in order. An event is refused only if the
// window plus one bucket has too many. It passes exactly when the answer promises, and not a
// millisecond before.
func TestDirectRefusesNoMoreThanABucketEarly(t *testing.T) {
	t.Parallel()
	dice := rand.New(rand.NewPCG(storetest.Seed(t), 4))
	d, clk := newDirect(t, shortLevels()...)
	rules := limits(1500, 8, 9_000, 20, 40_000, 50)
	var log exactLog
	try := func() twotier.Result {
		res := acquire(t, d, twotier.Check{Key: []byte("k"), N: 1, Limits: rules})
		if res.Allowed {
			log = append(log, counted{"k", clk.now.Load(), 1})
		}
		return res
	}
	refused := 0
	for range 1000 {
		clk.now.Add(dice.Int64N(400) * dice.Int64N(2))
		now := clk.now.Load()
		res := try()
		if res.Allowed {
			continue
		}
		refused++
		full := false
		for i, rule := range rules {
			lr := res.Checks[0].Limits[i]
			exact := log.within("k", now-rule.Window-lr.BucketMS+1, now)
			full = full || exact+1 > rule.Max
			if lr.Refused && exact+1 <= rule.Max {
				t.Errorf(
					"%d in %d ms is refused when %d are there, a bucket of %d ms more included",
					rule.Max, rule.Window, exact, lr.BucketMS)
			}
		}
		if !full {
			t.Fatalf("refused without need: %+v", res)
		}
		if dice.IntN(10) == 0 {
			clk.now.Store(now + res.RetryAfter - 1)
			if try().Allowed {
				t.Errorf("passes %d ms after it was told to wait %d", res.RetryAfter-1,
					res.RetryAfter)
			}
			clk.now.Add(1)
			if !try().Allowed {
				t.Errorf("doesn't pass after %d ms, as it was told", res.RetryAfter)
			}
		}
	}
	if refused < 50 || len(log) < 50 {
		t.Errorf("%d refused, %d admitted: the test shows nothing", refused, len(log))
	}
	log.keep(t, rules)
	if res := acquire(t, d, check("k", 9, 1500, 8)); res.Allowed || res.RetryAfter != -1 {
		t.Errorf("more than the limit at once: %+v", res)
	}
}

// TestLargeLimitsAreExact: a limit near 2^53 is reached exactly, and a larger one means 2^53-1, in
// both modes.
func TestLargeLimitsAreExact(t *testing.T) {
	t.Parallel()
	srv, s := started(t)
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

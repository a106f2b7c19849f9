package redisstore_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
	"twotier.dev/twotier/syncer/storetest"
)

// The default of traceOps suits every change; scripts/check runs more, without the race detector.
var traceOps = flag.Int("ops", 1000, "operations in each trace of TestModesAreEquivalent")

func openCounter(t testing.TB, opt syncer.Options) *syncer.Counter {
	t.Helper()
	opt.FlushInterval, opt.LoadTimeout, opt.RoundTimeout = 5*time.Millisecond, time.Minute,
		time.Minute
	c, err := syncer.New(opt)
	must.Succeed(t, err)
	must.Succeed(t, c.Open(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

func flush(t testing.TB, c *syncer.Counter) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must.Succeed(t, c.Flush(ctx))
}

// twoSpaces returns ladders for two namespaces, in the forms that both modes take. In one, events
// keep their millisecond.
func twoSpaces(t testing.TB) (map[string]*leaparray.Ladder, map[string]syncer.Namespace) {
	return spacesOf(ladderOf(t, shortLevels()...), otherLadder(t, 0,
		leaparray.Level{Width: 250 * time.Millisecond, Count: 12},
		leaparray.Level{Width: 2 * time.Second, Count: 30}))
}

// plainSpaces is twoSpaces with ladders whose cells never fold, so that the time of a fold makes no
// difference.
func plainSpaces(t testing.TB) (map[string]*leaparray.Ladder, map[string]syncer.Namespace) {
	return spacesOf(otherLadder(t, 0, leaparray.Level{Width: 100 * time.Millisecond, Count: 560}),
		otherLadder(t, 0, leaparray.Level{Width: 250 * time.Millisecond, Count: 240}))
}

func spacesOf(l, other *leaparray.Ladder) (map[string]*leaparray.Ladder,
	map[string]syncer.Namespace) {
	return map[string]*leaparray.Ladder{"default": l, "other": other},
		map[string]syncer.Namespace{"default": {Ladder: l, MostValues: mostValues["default"]},
			"other": {Ladder: other, MostValues: mostValues["other"]}}
}

// otherLadder is ladderOf with another number of events that keep their millisecond.
func otherLadder(t testing.TB, exact int, levels ...leaparray.Level) *leaparray.Ladder {
	t.Helper()
	l, err := leaparray.NewLadder(exact, levels...)
	must.Succeed(t, err)
	return l
}

// opener opens a store that expires cells in one of these ways.
type opener func(t *testing.T, opt redisstore.Options) *redisstore.Store

// expiries runs a test with each way of expiring cells that a server supports.
func expiries(t *testing.T, each func(t *testing.T, open opener)) {
	srv := redistest.Start(t)
	for _, e := range redistest.Expiries(t, srv) {
		t.Run(e, func(t *testing.T) {
			flushAll(t, srv)
			each(t, func(t *testing.T, opt redisstore.Options) *redisstore.Store {
				opt.URL, opt.Expiry = srv.URL(), redisstore.Expiry(e)
				return open(t, opt)
			})
		})
	}
}

// randomOp draws any operation over a few keys.
func randomOp(dice *rand.Rand, now int64) twotier.Op {
	op := twotier.Op{Kind: twotier.Kind(dice.IntN(3))}
	switch dice.IntN(8) {
	case 0:
		op.TS = now - dice.Int64N(60_000)
	case 1:
		op.TS = now - dice.Int64N(1500)
	case 2:
		op.TS = now + dice.Int64N(2500)
	}
	checks := 1
	if op.Kind == twotier.Acquire {
		checks = 1 + dice.IntN(2)*dice.IntN(4)
		op.CountDenied, op.DryRun = dice.IntN(6) == 0, dice.IntN(6) == 0
		op.Charge = dice.IntN(8) == 0
	}
	for range checks {
		i, c := dice.IntN(4), check("", 1+dice.Int64N(3))
		switch dice.IntN(6) {
		case 0, 1:
			c.NS = []byte("other")
		case 2:
			c.NS = []byte(twotier.DefaultNamespace)
		}
		c.Key = keyOf(string(c.NS), i)
		windows := []int64{1, 100, 777, 1500, 3000, 9000, 20_000, 56_000}
		for range 1 + dice.IntN(3) {
			c.Limits = append(c.Limits,
				twotier.Limit{Window: windows[dice.IntN(len(windows))], Max: 1 + dice.Int64N(40)})
		}
		if op.Kind == twotier.Add && dice.IntN(2) == 0 {
			c.Limits = nil
		}
		switch {
		case op.Kind == twotier.Add && dice.IntN(4) == 0:
			c.N = -c.N
		case op.Kind == twotier.Acquire && dice.IntN(8) == 0:
			c.N = 0
		}
		if op.Kind == twotier.Acquire && checks == 1 && dice.IntN(8) == 0 {
			c.N, c.Limits = -1-dice.Int64N(4), nil // settles a hold
		}
		op.Checks = append(op.Checks, c)
		for i := range dice.IntN(3) {
			if op.Kind == twotier.Acquire && len(c.Limits) > 0 {
				op.Checks = append(op.Checks, banOf(dice, &c, i))
			}
		}
		for op.Kind == twotier.Acquire && dice.IntN(3) == 0 {
			op.Checks = append(op.Checks, leaseOf(dice, &c, now, checks == 1))
		}
	}
	return op
}

// leaseOf returns a check that takes leases of a check's key or, if it may, returns some. They end
// within seconds, so that some have the same end.
func leaseOf(dice *rand.Rand, c *twotier.Check, now int64, returns bool) twotier.Check {
	l := twotier.Check{Kind: twotier.LeaseCheck, N: 1 + dice.Int64N(2),
		Until: now + 1 + dice.Int64N(2000), Limits: limits(1, 1+dice.Int64N(6))}
	if returns && dice.IntN(3) == 0 {
		l.N, l.Until = -1, now-100+dice.Int64N(2000)
	}
	l.Until -= l.Until % 50
	if l.N > 0 {
		l.Until = max(l.Until, now+1)
	}
	l.NS, l.Key = twotier.LeaseKey(c.NS, "", c.Key)
	return l
}

// opOfOneKey is randomOp with the first key and its bans.
func opOfOneKey(dice *rand.Rand, now int64) twotier.Op {
	op := randomOp(dice, now)
	for i := 1; i < len(op.Checks); i++ {
		if !op.Checks[i].IsBan() {
			op.Checks = op.Checks[:i]
		}
	}
	return op
}

// opAtPresent is randomOp without late events.
func opAtPresent(dice *rand.Rand, now int64) twotier.Op {
	op := randomOp(dice, now)
	op.TS = 0
	return op
}

// banOf draws a ban of a key by one of two rules, which cover some of its limits.
func banOf(dice *rand.Rand, c *twotier.Check, i int) twotier.Check {
	from := dice.IntN(len(c.Limits))
	b := twotier.Check{Kind: twotier.BanCheck, Ban: twotier.Ban{From: uint16(from),
		To: uint16(from + 1 + dice.IntN(len(c.Limits)-from))},
		Limits: []twotier.Limit{{Window: 1000 + dice.Int64N(5000)}}}
	b.NS, b.Key = twotier.BanKey(c.NS, fmt.Sprint("rule", i), c.Key)
	return b
}

// keyOf names the keys of a random operation. In the other namespace, keys share a hash tag in
// pairs, which has no effect unless the placement uses hash tags.
func keyOf(ns string, i int) []byte {
	if ns == "other" {
		return fmt.Appendf(nil, "{t%d}:k%d", i/2, i)
	}
	return fmt.Append(nil, "k", i)
}

// outcome returns the part of an answer that must be the same in both modes.
func outcome(ctx context.Context, d doer, op twotier.Op) string {
	var res twotier.Result
	if err := d.Do(ctx, &op, &res); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("allowed %v, retry after %d, %+v", res.Allowed, res.RetryAfter, res.Checks)
}

// agrees reports whether the bounds of both modes overlap in a read. Their cells may have folded at
// different times.
func agrees(t *testing.T, op twotier.Op, a, b doer) bool {
	t.Helper()
	x, y := do(t, a, op), do(t, b, op)
	for i, lr := range x.Checks[0].Limits {
		if other := y.Checks[0].Limits[i]; lr.Lo > other.Hi || other.Lo > lr.Hi {
			return false
		}
	}
	return true
}

// bounce adds a count and takes it back.
func bounce(t *testing.T, dice *rand.Rand, both ...doer) {
	key, n := fmt.Sprint("k", dice.IntN(4)), 1+dice.Int64N(3)
	for _, d := range both {
		add(t, d, key, n, 0)
		add(t, d, key, -n, 0)
	}
}

// rob takes more back from the present cells of a key than is ever counted in them.
func rob(t *testing.T, s *redisstore.Store, at twotier.Placement,
	ladders map[string]*leaparray.Ladder, key string, now int64) {
	for name, l := range ladders {
		ns := []byte(name)
		if name == twotier.DefaultNamespace {
			ns = nil
		}
		// The key may be new, and is only listed with its time to live.
		k := syncer.KeyRound{NS: ns, Key: []byte(key), TTL: time.Hour.Milliseconds(),
			Adds: []syncer.Bucket{{Stretch: leaparray.Moment(now), N: -7}}}
		for level := range l.Len() {
			k.Adds = append(k.Adds, syncer.Bucket{Stretch: bucketAt(l.Width(level), now), N: -7})
		}
		r := &syncer.Round{Partition: at.Of(ns, k.Key), Now: now,
			Writer: fmt.Sprint("robber of ", name, key, now), Seq: 1,
			Keys: []syncer.KeyRound{k}}
		if s.Exchange(t.Context(), []*syncer.Round{r}); r.Err != nil || k.Err != nil {
			t.Fatal(r.Err, k.Err)
		}
	}
}

// bucketAt returns the bucket of a width around a moment.
func bucketAt(width, ms int64) leaparray.Stretch {
	return leaparray.Stretch{Start: ms - ms%width, Width: width}
}

// sameCounts compares the counts of both modes for the first key of an operation in its windows, up
// to the time of the operation or up to now.
func sameCounts(t *testing.T, now int64, op twotier.Op, a, b doer) {
	t.Helper()
	op = twotier.Op{Kind: twotier.Count, TS: op.TS, Checks: op.Checks[:1]}
	op.TS = min(op.TS, now)
	if a, b := outcome(t.Context(), a, op), outcome(t.Context(), b, op); a != b {
		t.Fatalf("at %d: %+v\none that begins: %s\ndirect:          %s", now, op, a, b)
	}
}

// widths are part of the outcome of an acquire. In memory, a mark may make them larger.
var widths = regexp.MustCompile("BucketMS:[0-9]+")

// TestModesAreEquivalent runs one random trace in both modes. Their cells fold at different times,
// so it uses ladders for which that makes no difference.
func TestModesAreEquivalent(t *testing.T) {
	t.Parallel()
	expiries(t, testModesAreEquivalent)
}

func testModesAreEquivalent(t *testing.T, open opener) {
	seed := storetest.Seed(t)
	dice := rand.New(rand.NewPCG(seed, 5))
	ladders, spaces := plainSpaces(t)
	clk := newClock(t0)
	store := open(t, redisstore.Options{Ladders: ladders, MostValues: mostValues})
	direct := openDirect(t, redisstore.DirectOptions{Store: store, Now: clk.now.Load})
	memory := embedded.New(embedded.Options{})
	opt := syncer.Options{Store: memory, Now: clk.now.Load, Namespaces: spaces}
	counter := openCounter(t, opt)
	var last settler
	for i := range *traceOps {
		switch dice.IntN(200) {
		case 0:
			clk.now.Add(dice.Int64N(200_000))
		default:
			clk.now.Add(dice.Int64N(300) * dice.Int64N(2))
		}
		op := last.next(dice, opWithValues(dice, clk.now.Load()), clk.now.Load())
		if dice.IntN(20) == 0 {
			bounce(t, dice, counter, direct)
			flush(t, counter)
			if dice.IntN(4) == 0 {
				fresh := openCounter(t, opt) // it only knows the store's counts
				for range 10 {
					sameCounts(t, clk.now.Load(), opWithValues(dice, clk.now.Load()), fresh,
						direct)
				}
				must.Succeed(t, fresh.Close(t.Context()))
			}
		}
		a, b := outcome(t.Context(), counter, op), notStored
		if !isShort(t, store, direct, op, clk.now.Load()) {
			b = outcome(t.Context(), direct, op)
		}
		if op.Kind == twotier.Acquire {
			a, b = widths.ReplaceAllString(a, ""), widths.ReplaceAllString(b, "")
		}
		if a != b {
			t.Fatalf("operation %d at %d: %+v\ntwo-tier: %s\ndirect:   %s", i, clk.now.Load(),
				op, a, b)
		}
	}
}

// TestModesReadEachOther writes some operations in one mode and reads them in the other, over and
// over on the same data. If the cells never fold, the answers are the same.
func TestModesReadEachOther(t *testing.T) {
	t.Parallel()
	expiries(t, func(t *testing.T, open opener) {
		ladders, spaces := plainSpaces(t)
		testModesReadEachOther(t, open, ladders, spaces, true)
	})
	expiries(t, func(t *testing.T, open opener) {
		ladders, spaces := twoSpaces(t)
		testModesReadEachOther(t, open, ladders, spaces, false)
	})
}

func testModesReadEachOther(t *testing.T, open opener, ladders map[string]*leaparray.Ladder,
	spaces map[string]syncer.Namespace, same bool) {
	dice := rand.New(rand.NewPCG(storetest.Seed(t), 6))
	clk := newClock(t0)
	few := twotier.Placement{Partitions: 7, HashTags: twotier.HashTags{"other": true}}
	store := open(t, redisstore.Options{Ladders: ladders, Placement: few, MostValues: mostValues})
	direct := openDirect(t, redisstore.DirectOptions{Store: store, Now: clk.now.Load})
	for phase := range 12 {
		counter := openCounter(t, syncer.Options{Store: store, Now: clk.now.Load,
			Namespaces: spaces, Placement: few})
		writer := doer(direct)
		if phase%2 == 1 {
			writer = counter
		}
		for range 60 {
			clk.now.Add(dice.Int64N(300) * dice.Int64N(2))
			if dice.IntN(10) == 0 {
				rob(t, store, few, ladders, fmt.Sprint("k", dice.IntN(4)), clk.now.Load())
			}
			_ = outcome(t.Context(), writer, opWithValues(dice, clk.now.Load()))
		}
		flush(t, counter)
		// A counter that already has keys learns of changes by others with its next verification.
		// One that starts now finds them all.
		reader := openCounter(t, syncer.Options{Store: store, Now: clk.now.Load, Namespaces: spaces,
			Placement: few})
		for _, ns := range []string{"default", "other"} {
			for i := range 4 {
				op := twotier.Op{Kind: twotier.Count, Checks: []twotier.Check{
					{NS: []byte(ns), Key: keyOf(ns, i),
						Limits: limits(1000, 0, 3000, 0, 20_000, 0, 56_000, 0)}}}
				a, b := outcome(t.Context(), reader, op), outcome(t.Context(), direct, op)
				if same && a != b || !agrees(t, op, reader, direct) {
					t.Errorf("phase %d, %s k%d:\ntwo-tier: %s\ndirect:   %s", phase, ns, i, a, b)
				}
				c := &op.Checks[0]
				c.Kind = twotier.ValuesCheck
				c.NS, c.Key = twotier.ValuesKey(c.NS, c.Key)
				a, b = outcome(t.Context(), reader, op), outcome(t.Context(), direct, op)
				if a != b {
					t.Errorf("phase %d, values of %s k%d:\ntwo-tier: %s\ndirect:   %s", phase, ns,
						i, a, b)
				}
			}
		}
	}
}

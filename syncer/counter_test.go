package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// clock is a clock that tests drive.
type clock struct {
	mu  sync.Mutex
	now int64
}

func (c *clock) Now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) set(now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = max(c.now, now)
}

const t0 = 1_763_000_000_000

func open(t testing.TB, opt syncer.Options) *syncer.Counter {
	t.Helper()
	if opt.Store == nil {
		opt.Store = embedded.New(embedded.Options{})
	}
	return openAlone(t, opt)
}

// openAlone opens a counter, which has no store unless the options have one.
func openAlone(t testing.TB, opt syncer.Options) *syncer.Counter {
	t.Helper()
	if opt.LoadTimeout == 0 { // a busy machine takes its time
		opt.LoadTimeout = time.Minute
	}
	if opt.FlushInterval == 0 {
		opt.FlushInterval = 5 * time.Millisecond
	}
	c, err := syncer.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Open(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

func limits(pairs ...int64) (l []twotier.Limit) {
	for i := 0; i < len(pairs); i += 2 {
		l = append(l, twotier.Limit{Window: pairs[i], Max: pairs[i+1]})
	}
	return l
}

func do(t testing.TB, c *syncer.Counter, op twotier.Op) twotier.Result {
	t.Helper()
	var res twotier.Result
	if err := c.Do(context.Background(), &op, &res); err != nil {
		t.Fatalf("Do(%+v): %v", op, err)
	}
	return res
}

func add(t testing.TB, c *syncer.Counter, key string, n, ts int64) twotier.Result {
	t.Helper()
	return do(t, c, twotier.Op{Kind: twotier.Add, TS: ts,
		Checks: []twotier.Check{checkOf(key, n)}})
}

func count(t testing.TB, c *syncer.Counter, key string, window int64) int64 {
	t.Helper()
	check := checkOf(key, 0)
	check.Limits = limits(window, 0)
	res := do(t, c, twotier.Op{Kind: twotier.Count, Checks: []twotier.Check{check}})
	return res.Checks[0].Limits[0].Hi
}

// wantCount expects a key to count so much.
func wantCount(t testing.TB, c *syncer.Counter, key string, window, want int64) {
	t.Helper()
	if got := count(t, c, key, window); got != want {
		t.Errorf("%q counts %d, want %d", key, got, want)
	}
}

func acquire(t testing.TB, c *syncer.Counter, key string, n, ts int64,
	l []twotier.Limit) twotier.Result {
	t.Helper()
	return do(t, c, twotier.Op{Kind: twotier.Acquire, TS: ts,
		Checks: []twotier.Check{{Key: []byte(key), N: n, Limits: l}}})
}

func flush(t testing.TB, c *syncer.Counter) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestColdKeyIsLoaded(t *testing.T) {
	store := embedded.New(embedded.Options{})
	clk := &clock{now: t0}
	// They only flush on request. Otherwise a counter might notice a change in one of its other
	// flushes, before the flush under test.
	opt := syncer.Options{Store: store, Now: clk.Now, FlushInterval: time.Hour}
	one := open(t, opt)
	add(t, one, "a", 3, 0)
	flush(t, one)
	two := open(t, opt)
	if res := acquire(t, two, "a", 1, 0, limits(60_000, 3)); res.Allowed ||
		res.Checks[0].Limits[0].Count != 3 {
		t.Errorf("acquire on a cold key: %+v", res)
	}
	add(t, two, "b", 1, 0)
	add(t, one, "b", 2, 0)
	flush(t, one)
	flush(t, two)
	wantCount(t, two, "b", 60_000, 3)
	wantCount(t, two, "nobody", 60_000, 0)
}

// TestLimitsCompareWithTheSumOfAllChecksOfAKey: regardless of the order of the checks and the
// spelling of the namespace, each limit of a key is compared with the whole operation's count of
// it.
func TestLimitsCompareWithTheSumOfAllChecksOfAKey(t *testing.T) {
	strict := twotier.Check{Key: []byte("x"), N: 1, Limits: limits(60_000, 1)}
	wide := twotier.Check{Key: []byte("x"), N: 5, Limits: limits(3_600_000, 10)}
	spelled := wide
	spelled.NS = []byte(twotier.DefaultNamespace)
	for _, checks := range [][]twotier.Check{{strict, wide}, {wide, strict}, {strict, spelled},
		{spelled, strict}} {
		for _, reserve := range []string{"", "id"} {
			c := open(t, syncer.Options{Now: (&clock{now: t0}).Now})
			for _, dry := range []bool{true, false} {
				op := twotier.Op{Kind: twotier.Acquire, DryRun: dry, Reserve: reserve,
					Checks: checks}
				if res := do(t, c, op); res.Allowed || res.RetryAfter != -1 {
					t.Errorf("dry run %v, reserve %q: 6 of 1: %+v", dry, reserve, res)
				}
			}
			op := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{checks[0]}}
			if res := do(t, c, op); !res.Allowed {
				t.Errorf("what was refused has counted: %+v", res)
			}
		}
	}
}

// TestNamespacesFitIntoAnEntry: an entry has 8 bits for its namespace. The default one and the six
// of companions are among the 256, configured or not.
func TestNamespacesFitIntoAnEntry(t *testing.T) {
	for _, test := range []struct {
		others   int
		listed   bool
		accepted bool
	}{{249, false, true}, {249, true, true}, {250, false, false}, {250, true, false}} {
		spaces := map[string]syncer.Namespace{}
		for i := range test.others {
			spaces[fmt.Sprint("ns", i)] = syncer.Namespace{}
		}
		if test.listed {
			spaces[twotier.DefaultNamespace] = syncer.Namespace{}
		}
		_, err := syncer.New(syncer.Options{Store: embedded.New(embedded.Options{}),
			Namespaces: spaces})
		if (err == nil) != test.accepted {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

func TestInvalid(t *testing.T) {
	clk := &clock{now: t0}
	c := open(t, syncer.Options{Now: clk.Now})
	for name, tc := range map[string]struct {
		op   twotier.Op
		want string
	}{
		"long": {twotier.Op{Kind: twotier.Acquire,
			Checks: []twotier.Check{{Key: []byte("k"), N: 1, Limits: limits(1, 1, 93_600_000, 1)}}},
			"limits[1].window: 26h is longer than the namespace covers (25h); it needs " +
				"`15m x 120` in namespace default"},
		"future": {twotier.Op{TS: t0 + 5000, Checks: []twotier.Check{{Key: []byte("k"), N: 1}}},
			"ts: 1763000005000 is 5000 ms in the future (it is 1763000000000 now), want at most " +
				"2000 ms"},
		"past": {twotier.Op{TS: t0 - 93_600_000, Checks: []twotier.Check{{Key: []byte("k"), N: 1}}},
			"ts: 1762906400000 is 26h ago, farther back than the namespace covers (25h)"},
	} {
		var res twotier.Result
		err := c.Do(context.Background(), &tc.op, &res)
		var invalid *twotier.InvalidError
		if !errors.As(err, &invalid) || err.Error() != tc.want {
			t.Errorf("%s: %v, want %s", name, err, tc.want)
		}
	}
	if c.Stats().Keys != 0 {
		t.Error("something was counted")
	}
}

// meter counts the exchanges, and the reads of each key.
type meter struct {
	syncer.Store
	mu        sync.Mutex
	exchanges int
	reads     map[string]int
}

func (m *meter) Exchange(ctx context.Context, rounds []*syncer.Round) {
	m.mu.Lock()
	m.exchanges++
	for _, r := range rounds {
		for i := range r.Keys {
			if r.Keys[i].Load {
				m.reads[string(r.Keys[i].Key)]++
			}
		}
	}
	m.mu.Unlock()
	m.Store.Exchange(ctx, rounds)
}

// TestColdKeysOfABatchAreReadTogether runs a batch of acquires on keys that are not in memory. Each
// is read once, in a few exchanges.
func TestColdKeysOfABatchAreReadTogether(t *testing.T) {
	m := &meter{Store: embedded.New(embedded.Options{}), reads: map[string]int{}}
	c := open(t, syncer.Options{Store: m, FlushInterval: time.Hour, Exchanges: 2})
	ops, res := make([]twotier.Op, 500), make([]twotier.Result, 500)
	for i := range ops {
		ops[i] = twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{
			{Key: fmt.Append(nil, "a", i), N: 1, Limits: limits(60_000, 1)},
			{Key: fmt.Append(nil, "b", i/2), N: 1, Limits: limits(60_000, 5)},
		}}
	}
	c.DoAll(t.Context(), ops, res)
	for i := range res {
		if res[i].Err != nil || !res[i].Allowed {
			t.Fatalf("operation %d: %+v", i, res[i])
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.exchanges > 20 {
		t.Errorf("%d exchanges for a batch", m.exchanges)
	}
	for key, n := range m.reads {
		if n > 1 {
			t.Errorf("%s was read %d times", key, n)
		}
	}
	if len(m.reads) != 750 {
		t.Errorf("%d keys were read, want 750", len(m.reads))
	}
}

// TestCheckCounts checks buckets as a store may return them.
func TestCheckCounts(t *testing.T) {
	at := func(start, n int64) syncer.Bucket {
		return syncer.Bucket{Stretch: leaparray.Moment(start), N: n}
	}
	for name, tc := range map[string]struct {
		held []syncer.Bucket
		ok   bool
	}{
		"nothing":    {nil, true},
		"counts":     {[]syncer.Bucket{at(1, 5), at(2, 1<<61)}, true},
		"below zero": {[]syncer.Bucket{at(1, 5), at(2, -7)}, true},
		"far below zero": {[]syncer.Bucket{at(1, math.MinInt64+1), at(2, 1)},
			true},
		"no number": {[]syncer.Bucket{at(1, 5), at(2, syncer.NoCount)}, false},
		"too many": {[]syncer.Bucket{at(1, 1<<62), at(2, -7), at(3, 1)},
			false},
	} {
		if err := syncer.CheckCounts(tc.held); (err == nil) != tc.ok ||
			err != nil && !errors.Is(err, syncer.ErrNotApplied) {
			t.Errorf("%s: %v, want no error: %v", name, err, tc.ok)
		}
	}
}

// TestTakenBackTwice has two counters take back the same events. One of them gets the news in a
// round that does not yet include its own part. It must never report a negative count.
func TestTakenBackTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co := newCompany(t, 1, nil)
		late := &slow{Store: co.store, sent: make(chan struct{}), answer: make(chan struct{})}
		co.counters = append(co.counters, open(t, syncer.Options{Store: late, Writer: "late",
			NotOwner: true, Placement: twotier.Placement{Partitions: 1}, FlushInterval: time.Hour,
			MaxRoundKeys: 2, Now: func() int64 { return t0 }}))
		co.add(0, "k", 5)
		co.flush(0)
		co.counts(1, "k")
		for _, other := range []string{"a", "b", "c", "d"} { // two rounds that are sent first
			co.add(1, other, 100)
		}
		co.add(1, "k", -5)
		co.add(0, "k", -5)
		co.flush(0)
		late.hold.Store(true)
		var flushed sync.WaitGroup
		flushed.Go(func() { flush(t, co.counters[1]) })
		<-late.sent
		late.hold.Store(true)
		late.answer <- struct{}{} // with the news
		<-late.sent
		res := do(t, co.counters[1], twotier.Op{Kind: twotier.Count, AllowNonOwner: true,
			Checks: []twotier.Check{{Key: []byte("k"), Limits: []twotier.Limit{{Window: 30_000}}}}})
		if l := res.Checks[0].Limits[0]; l.Count != 0 || l.Lo != 0 || l.Hi != 0 {
			t.Errorf("before it is flushed: %+v", l)
		}
		late.answer <- struct{}{}
		flushed.Wait()
		if got := co.stored("k"); got != -5 {
			t.Errorf("the store has %d, want -5", got)
		}
		for i := range co.counters {
			if got := co.counts(i, "k"); got != 0 {
				t.Errorf("counter %d says %d", i, got)
			}
		}
	})
}

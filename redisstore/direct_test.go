package redisstore_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// clock is a clock that tests drive.
type clock struct{ now atomic.Int64 }

func newClock(now int64) *clock {
	c := &clock{}
	c.now.Store(now)
	return c
}

// doer is the part that both modes share.
type doer interface {
	Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error
}

const t0 = 1_763_000_000_000

// openDirect starts a Direct that is closed with the test.
func openDirect(t testing.TB, opt redisstore.DirectOptions) *redisstore.Direct {
	t.Helper()
	if opt.Writer == "" {
		opt.Writer = "direct"
	}
	if opt.Timeout == 0 {
		opt.Timeout = time.Minute
	}
	d, err := redisstore.NewDirect(opt)
	must.Succeed(t, err)
	must.Succeed(t, d.Open(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		if err := d.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return d
}

// newDirect starts a Direct on a separate server, with the default ladder and a clock.
func newDirect(t testing.TB, levels ...leaparray.Level) (*redisstore.Direct, *clock) {
	t.Helper()
	if levels == nil {
		levels = leaparray.DefaultLevels()
	}
	srv := redistest.Start(t)
	clk := newClock(t0)
	s := open(t, redisstore.Options{URL: srv.URL(), Ladders: ladders(ladderOf(t, levels...))})
	return openDirect(t, redisstore.DirectOptions{Store: s, Now: clk.now.Load}), clk
}

func do(t testing.TB, d doer, op twotier.Op) twotier.Result {
	t.Helper()
	var res twotier.Result
	if err := d.Do(t.Context(), &op, &res); err != nil {
		t.Fatalf("Do(%+v): %v", op, err)
	}
	return res
}

func limits(pairs ...int64) (l []twotier.Limit) {
	for i := 0; i < len(pairs); i += 2 {
		l = append(l, twotier.Limit{Window: pairs[i], Max: pairs[i+1]})
	}
	return l
}

func check(key string, n int64, pairs ...int64) twotier.Check {
	return twotier.Check{Key: []byte(key), N: n, Limits: limits(pairs...)}
}

func add(t testing.TB, d doer, key string, n, ts int64) {
	t.Helper()
	do(t, d, twotier.Op{Kind: twotier.Add, TS: ts, Checks: []twotier.Check{check(key, n)}})
}

func count(t testing.TB, d doer, key string, window int64) int64 {
	t.Helper()
	return do(t, d, twotier.Op{Kind: twotier.Count,
		Checks: []twotier.Check{check(key, 0, window, 0)}}).Checks[0].Limits[0].Hi
}

func acquire(t testing.TB, d doer, checks ...twotier.Check) twotier.Result {
	t.Helper()
	return do(t, d, twotier.Op{Kind: twotier.Acquire, Checks: checks})
}

func TestDirectForgetAndSeries(t *testing.T) {
	t.Parallel()
	d, clk := newDirect(t)
	for i := range 3 {
		add(t, d, "a", int64(i+1), 0)
		clk.now.Add(1000)
	}
	width, points, err := d.Series(t.Context(), nil, []byte("a"), 5000)
	points = slices.DeleteFunc(points, func(p twotier.Point) bool { return p.Count == 0 })
	got := fmt.Sprint(width, points, err)
	want := fmt.Sprintf("100 [{%d 1} {%d 2} {%d 3}] <nil>", t0, t0+1000, t0+2000)
	if got != want {
		t.Errorf("series is %s, want %s", got, want)
	}
	all, now, err := d.Snapshot(t.Context(), nil, []byte("a"))
	for _, window := range []int64{60_000, 86_400_000} {
		if e, ok := all.Count(window, now, true); err != nil || !ok || e.Count != 6 {
			t.Errorf("snapshot has %+v in %d ms, want 6: %v", e, window, err)
		}
	}
	must.Succeed(t, d.Forget(t.Context(), []byte("default"), []byte("a")))
	hi(t, d, "a", 0)
}

// TestDirectFoldsAreBounded counts many keys at once that have many cells to fold. A script folds
// only some of them, and later ones the rest.
func TestDirectFoldsAreBounded(t *testing.T) {
	t.Parallel()
	const keys, cells = 100, 120
	srv, s := started(t)
	clk := newClock(t0)
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: clk.now.Load, Workers: 1})
	ops, res := make([]twotier.Op, keys), make([]twotier.Result, keys)
	for i := range ops {
		key := fmt.Sprint("k", i)
		ops[i] = twotier.Op{Checks: []twotier.Check{check(key, 1)}}
		var list []syncer.Bucket
		for j := range int64(cells) {
			list = append(list, at(100, t0-3_600_000-20_000*j, 100))
		}
		plant(t, srv, s.Address(key), list...)
	}
	held := func() (n int) {
		d.DoAll(t.Context(), ops, res)
		for i := range ops {
			must.Succeed(t, res[i].Err)
			n += len(bucketsIn(t, srv, s.Address(fmt.Sprint("k", i))))
		}
		return n
	}
	if n := held(); n < keys*cells/2 || n > keys*cells {
		t.Errorf("%d of %d cells are left after one script, want some to have folded", n,
			keys*cells)
	}
	n := 0
	for range 5 {
		n = held()
	}
	if n > 50*keys {
		t.Errorf("%d cells are left in the end", n)
	}
}

// TestHeldKeysAreBounded counts far more keys than a Direct may hold.
func TestHeldKeysAreBounded(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector needs memory of its own")
	}
	s := open(t, redisstore.Options{URL: redistest.Start(t).URL()})
	const memory = 1 << 20
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load,
		Memory: memory})
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	ops, res := make([]twotier.Op, 500), make([]twotier.Result, 500)
	round := func(n int) {
		for i := range ops {
			ops[i] = twotier.Op{Checks: []twotier.Check{check(fmt.Sprint("k", n, "-", i), 1)}}
		}
		d.DoAll(t.Context(), ops, res)
	}
	round(0)
	before := heap()
	for n := range 60 {
		round(1 + n)
	}
	if grown := int64(heap()) - int64(before); grown > 4*memory {
		t.Errorf("30,000 keys take %d KiB more, may be held in %d", grown>>10, memory>>10)
	}
}

// TestDirectReadsAgain loses the answer to a read of a key: it is read again, because that does
// nothing.
func TestDirectReadsAgain(t *testing.T) {
	t.Parallel()
	srv, p, s := startProxied(t, 300*time.Millisecond)
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load,
		Timeout: 10 * time.Second})
	const keys = 200 // after some that exist, the next ones are read
	for i := range keys {
		key := fmt.Sprint("k", i)
		plant(t, srv, s.Address(key), at(1, t0, 1))
		var lost <-chan struct{}
		if i == keys-1 {
			lost = p.SwallowNext("HGETALL")
		}
		if res := acquire(t, d, check(key, 1, 60_000, 5)); !res.Allowed ||
			res.Checks[0].Limits[0].Count != 2 {
			t.Errorf("%s: %+v", key, res)
		}
		if lost != nil {
			<-lost
		}
	}
}

// TestDirectClusterWorkersNumberTheirBatches counts two keys in different slots and of different
// workers whose hashes in the lists of keys are equal, alone and together in a batch. Each worker
// has numbers of its own, also where it takes over a call of the other one.
func TestDirectClusterWorkersNumberTheirBatches(t *testing.T) {
	t.Parallel()
	s := open(t, redisstore.Options{URL: redistest.StartCluster(t, 2, 0).URL()})
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load, Workers: 2})
	seen := map[uint32]string{}
	a, b := "", ""
	for i := 0; a == ""; i++ {
		key := fmt.Sprint("k", i)
		hash := syncer.KeyHash(nil, []byte(key))
		if other, ok := seen[hash]; ok && s.Partition(other)%2 != s.Partition(key)%2 {
			a, b = other, key
		}
		seen[hash] = key
	}
	for range 20 {
		add(t, d, b, 1, 0)
	}
	twice := twotier.Op{Kind: twotier.Acquire,
		Checks: []twotier.Check{check(a, 1, 60_000, 100), check(a, 1, 60_000, 100)}}
	for range 30 {
		ops, res := []twotier.Op{twice, {Checks: []twotier.Check{check(b, 1)}}},
			make([]twotier.Result, 2)
		d.DoAll(t.Context(), ops, res)
		if res[0].Err != nil || res[1].Err != nil {
			t.Fatal(res[0].Err, res[1].Err)
		}
		add(t, d, a, 1, 0)
	}
	if n, m := count(t, d, a, 60_000), count(t, d, b, 60_000); n != 90 || m != 50 {
		t.Errorf("%s has %d, want 90; %s has %d, want 50", a, n, b, m)
	}
}

// TestBatchKeepsTheOrderOfEveryKey: the operations of a batch share a key that is the second one of
// an acquire. They are carried out in their order, on one server and in a cluster.
func TestBatchKeepsTheOrderOfEveryKey(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"one server": redistest.Start(t).URL(),
		"cluster": redistest.StartCluster(t, 2, 0).URL()} {
		s := open(t, redisstore.Options{URL: url})
		d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load})
		for i := range 100 {
			a := fmt.Sprint("a", i)
			b := elsewhere(s, a, fmt.Sprint("b", i, "-"))
			once := func(key string) twotier.Check { return check(key, 1, 60_000, 1) }
			read := twotier.Op{Kind: twotier.Count, Checks: []twotier.Check{check(b, 0, 60_000, 0)}}
			ops := []twotier.Op{read,
				{Kind: twotier.Acquire, Checks: []twotier.Check{once(a), once(b)}},
				{Kind: twotier.Acquire, Checks: []twotier.Check{once(b)}}, read}
			res := make([]twotier.Result, len(ops))
			d.DoAll(t.Context(), ops, res)
			for j := range res {
				if res[j].Err != nil {
					t.Fatal(res[j].Err)
				}
			}
			before, after := res[0].Checks[0].Limits[0].Hi, res[3].Checks[0].Limits[0].Hi
			if before != 0 || !res[1].Allowed || res[2].Allowed || after != 1 {
				t.Fatalf("%s, batch %d: %d before, allowed %v and %v, %d after", name, i, before,
					res[1].Allowed, res[2].Allowed, after)
			}
		}
	}
}

// TestReadsAreBounded counts keys with a wide ladder. One pipeline reads only a few of them.
func TestReadsAreBounded(t *testing.T) {
	t.Parallel()
	wide := ladderOf(t, leaparray.Level{Width: time.Second, Count: 3600},
		leaparray.Level{Width: time.Minute, Count: 1440})
	s := open(t, redisstore.Options{URL: redistest.Start(t).URL(), Ladders: ladders(wide)})
	d := openDirect(t, redisstore.DirectOptions{Store: s, Now: newClock(t0).now.Load, Workers: 1})
	add(t, d, "warm", 1, 0)
	before := s.Health().RoundTrips
	ops, res := make([]twotier.Op, 24), make([]twotier.Result, 24)
	for i := range ops {
		ops[i] = twotier.Op{Kind: twotier.Count,
			Checks: []twotier.Check{check(fmt.Sprint("k", i), 0, 1000, 0)}}
	}
	d.DoAll(t.Context(), ops, res)
	if n := s.Health().RoundTrips - before; n < 8 {
		t.Errorf("24 keys took %d round trips, want one for at most three keys", n)
	}
}

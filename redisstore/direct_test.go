package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
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
	if got := count(t, d, "a", 60_000); got != 0 {
		t.Errorf("count %d after it was forgotten", got)
	}
}

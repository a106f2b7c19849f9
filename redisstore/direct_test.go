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

func TestDirectFivePerMinute(t *testing.T) {
	t.Parallel()
	d, _ := newDirect(t)
	for i := range 7 {
		res := acquire(t, d, check("18829340001", 1, 60_000, 5))
		if res.Allowed != (i < 5) || res.Checks[0].Limits[0].Count != int64(min(i+1, 5)) ||
			res.Source != twotier.SourceRedis {
			t.Errorf("try %d: %+v", i+1, res)
		}
		if i >= 5 && (res.RetryAfter < 60_000 || res.RetryAfter > 61_000) {
			t.Errorf("retry after %d ms", res.RetryAfter)
		}
	}
}

func TestDirectTenPerFiveMinutes(t *testing.T) {
	t.Parallel()
	d, clk := newDirect(t)
	day := int64(t0) / 86_400_000 * 86_400_000
	at := func(h, m int64) { clk.now.Store(day + 86_400_000 + h*3_600_000 + m*60_000) }
	at(11, 1)
	clk.now.Add(1) // five minutes later it is just in the window
	add(t, d, "k", 1, 0)
	at(11, 5)
	add(t, d, "k", 8, 0)
	at(11, 6)
	passed := 0
	for range 8 {
		if acquire(t, d, check("k", 1, 300_000, 10)).Allowed {
			passed++
		}
	}
	if passed != 1 {
		t.Errorf("%d of 8 passed, want 1", passed)
	}
}

func TestDirectFiveSeconds(t *testing.T) {
	t.Parallel()
	d, clk := newDirect(t)
	add(t, d, "k", 1, 0)
	clk.now.Store(t0 + 3000)
	add(t, d, "k", 2, 0)
	for _, tc := range []struct{ at, want int64 }{{4, 3}, {7, 2}, {9, 0}} {
		clk.now.Store(t0 + tc.at*1000)
		if got := count(t, d, "k", 5000); got != tc.want {
			t.Errorf("at %d s: %d, want %d", tc.at, got, tc.want)
		}
	}
}

func TestDirectThreshold(t *testing.T) {
	t.Parallel()
	d, _ := newDirect(t)
	for _, tc := range []struct {
		n    int64
		over bool
	}{{50, false}, {60, true}, {10, true}} {
		res := do(t, d, twotier.Op{Kind: twotier.Add,
			Checks: []twotier.Check{check("add", tc.n, 60_000, 100)}})
		if res.Allowed == tc.over {
			t.Errorf("add %d: %+v", tc.n, res)
		}
	}
	for _, tc := range []struct {
		n  int64
		ok bool
	}{{50, true}, {20, true}, {50, false}} {
		if res := acquire(t, d, check("acquire", tc.n, 60_000, 100)); res.Allowed != tc.ok {
			t.Errorf("acquire %d: %+v", tc.n, res)
		}
	}
	if a, b := count(t, d, "add", 60_000), count(t, d, "acquire", 60_000); a != 120 || b != 70 {
		t.Errorf("stored %d and %d, want 120 and 70", a, b)
	}
}

func TestDirectSeveralChecksAllOrNothing(t *testing.T) {
	t.Parallel()
	d, _ := newDirect(t)
	checks := []twotier.Check{check("x", 1, 60_000, 3), check("y", 1, 60_000, 2),
		check("x", 1, 60_000, 3)}
	if res := acquire(t, d, checks...); !res.Allowed || res.Checks[0].Limits[0].Count != 2 ||
		res.Checks[2].Limits[0].Count != 2 {
		t.Errorf("first: %+v", res)
	}
	res := acquire(t, d, checks...)
	if res.Allowed || !res.Checks[0].Refused || res.Checks[1].Refused || !res.Checks[2].Refused {
		t.Errorf("second: %+v", res)
	}
	if x, y := count(t, d, "x", 60_000), count(t, d, "y", 60_000); x != 2 || y != 1 {
		t.Errorf("stored x=%d y=%d, want 2 and 1", x, y)
	}
	// Several limits of one key: the shorter one refuses.
	res = acquire(t, d, check("x", 1, 1000, 2, 86_400_000, 50))
	if res.Allowed || !res.Checks[0].Limits[0].Refused || res.Checks[0].Limits[1].Refused {
		t.Errorf("several limits: %+v", res)
	}
}

func TestDirectCountDenied(t *testing.T) {
	t.Parallel()
	d, _ := newDirect(t)
	op := twotier.Op{Kind: twotier.Acquire, CountDenied: true,
		Checks: []twotier.Check{check("a", 2, 60_000, 3), check("b", 1, 60_000, 9)}}
	for i, want := range []bool{true, false, false} {
		res := do(t, d, op)
		if res.Allowed != want || res.Checks[0].Limits[0].Count != int64(2*(i+1)) {
			t.Errorf("try %d: %+v", i+1, res)
		}
	}
	if a, b := count(t, d, "a", 60_000), count(t, d, "b", 60_000); a != 6 || b != 3 {
		t.Errorf("stored %d and %d, want 6 and 3", a, b)
	}
}

func TestDirectTakingBackStopsAtZero(t *testing.T) {
	t.Parallel()
	d, clk := newDirect(t)
	add(t, d, "a", 3, 0)
	add(t, d, "a", -2, 0)
	if got := count(t, d, "a", 60_000); got != 1 {
		t.Errorf("count %d, want 1", got)
	}
	add(t, d, "a", -5, 0)
	add(t, d, "never there", -5, 0)
	clk.now.Add(10_000)
	add(t, d, "a", -5, 0) // the second's bucket is empty, the minute's is not
	add(t, d, "a", 4, 0)
	if a, n := count(t, d, "a", 60_000), count(t, d, "never there", 60_000); a != 4 || n != 0 {
		t.Errorf("counts %d and %d, want 4 and 0", a, n)
	}
}

func TestDirectRefusesWhatItCantAnswer(t *testing.T) {
	t.Parallel()
	d, _ := newDirect(t)
	for want, op := range map[string]twotier.Op{
		"limits[0].window: 26h is longer than the namespace covers (25h); it needs `15m x 120` in " +
			"namespace default": {Kind: twotier.Acquire,
			Checks: []twotier.Check{check("k", 1, 93_600_000, 1)}},
		"ts: 1763000005000 is 5000 ms in the future (it is 1763000000000 now), " +
			"want at most 2000 ms": {TS: t0 + 5000,
			Checks: []twotier.Check{check("k", 1)}},
	} {
		var res twotier.Result
		if err := d.Do(t.Context(), &op, &res); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	add(t, d, "k", 1, 0)
	op := twotier.Op{Kind: twotier.Acquire, TS: t0 - 89_000_000,
		Checks: []twotier.Check{check("k", 1, 90_000_000, 10)}}
	var res twotier.Result
	// The longest window covers even the latest possible event.
	if err := d.Do(t.Context(), &op, &res); err != nil || !res.Allowed {
		t.Errorf("%+v, %v", res, err)
	}
	if got := count(t, d, "k", 90_000_000); got != 2 {
		t.Errorf("count %d, want 2", got)
	}
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

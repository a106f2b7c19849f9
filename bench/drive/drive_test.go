package drive_test

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/limiter"
	"twotier.dev/twotier/internal/testing/must"
)

// counter admits every second decision and records the calls.
type counter struct {
	mu    sync.Mutex
	n     int
	keys  map[string]int
	rules int
	last  map[string]int64
	late  int
}

func newCounter() *counter {
	return &counter{keys: make(map[string]int), last: make(map[string]int64)}
}

func (c *counter) Name() string { return "counter" }

func (c *counter) Decide(_ context.Context, calls []limiter.Call) (admitted int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range calls {
		c.n++
		for _, k := range call.Checks {
			key := string(k.Key)
			c.keys[key]++
			c.rules += len(k.Limits)
			if call.TS < c.last[key] {
				c.late++
			}
			c.last[key] = call.TS
		}
		if c.n%2 == 0 {
			admitted++
		}
	}
	return admitted, nil
}

// run runs for longer if nothing was called in time, because the machine stood still.
func run(t *testing.T, l limiter.Limiter, o drive.Options) (r drive.Result, err error) {
	t.Helper()
	for range 8 {
		d, err := drive.New(l, o)
		must.Succeed(t, err)
		if r, err = d.Run(t.Context()); err != nil || r.Decisions > 0 || r.Errors > 0 {
			return r, err
		}
		o.Duration *= 2
	}
	t.Fatalf("no call within %v", o.Duration)
	return r, err
}

func TestEveryDecisionIsCounted(t *testing.T) {
	for _, o := range []drive.Options{
		{Workload: "hot"}, {Workload: "zipf", Rate: 5000}, {Workload: "distinct", Batch: 30},
		{Workload: "messages", Batch: 7},
		{Workload: "diurnal"}, {Workload: "diurnal", Rate: 1},
		{Workload: "distinct", MaxCalls: 400, Duration: time.Minute},
		{Workload: "uniform", Keys: 10},
	} {
		c := newCounter()
		o.Duration, o.Workers = cmp.Or(o.Duration, 300*time.Millisecond), 4
		r, err := run(t, c, o)
		if err != nil || r.Err() != nil {
			t.Fatal(err, r.Err())
		}
		t.Logf("%s: %d decisions of %d keys, %.0f/s", o.Workload, r.Decisions, len(c.keys),
			r.PerSecond)
		if r.Decisions == 0 || int64(c.n) != r.Decisions || r.Admitted != r.Decisions/2 {
			t.Errorf("%+v: %d decisions, %d admitted; it saw %d", o, r.Decisions, r.Admitted, c.n)
		}
		if o.MaxCalls > 0 && c.n != o.MaxCalls || o.Workload == "hot" && len(c.keys) != 1 ||
			o.Workload == "distinct" && len(c.keys) != c.n {
			t.Errorf("%+v: %d decisions of %d keys", o, c.n, len(c.keys))
		}
		if o.Workload == "diurnal" && (c.rules != 4*c.n || c.late > 0) {
			t.Errorf("%+v: %d rules in %d decisions, %d out of order", o, c.rules, c.n, c.late)
		}
	}
}

func TestUnknownWorkload(t *testing.T) {
	if _, err := drive.New(newCounter(), drive.Options{Workload: "none"}); err == nil {
		t.Error("an unknown workload was taken")
	}
}

// failing fails.
type failing struct{ counter }

func (f *failing) Decide(context.Context, []limiter.Call) (int, error) {
	return 0, errors.New("out of order")
}

func TestFailureIsReported(t *testing.T) {
	r, err := run(t, &failing{}, drive.Options{Workload: "hot", Workers: 2,
		Duration: 30 * time.Millisecond})
	if err != nil || r.Errors == 0 || r.Err() == nil || r.Decisions != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

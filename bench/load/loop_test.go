package load_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/bench/load"
)

func always() (time.Duration, bool) { return 0, true }

func TestLoopMeasuresWhatFollowsTheWarmup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		loop := load.Loop{Rate: 100, Warmup: time.Second, Duration: 2 * time.Second}
		r := loop.Run(t.Context(), []load.Worker{{Next: always, Do: func() error {
			calls.Add(1)
			time.Sleep(5 * time.Millisecond)
			return nil
		}}})
		if calls.Load() != 300 || r.Calls != 200 || r.Unsent != 0 || r.Latency.Max/1000 != 5 ||
			r.Err() != nil {
			t.Errorf("%d calls, %+v", calls.Load(), r)
		}
	})
}

// A goroutine may get its processor only after a short loop is over.
func TestClosedLoopMeasuresACallOfEachWorker(t *testing.T) {
	late := load.Worker{
		Next: func() (time.Duration, bool) { time.Sleep(time.Second); return 0, true },
		Do:   func() error { return nil },
	}
	synctest.Test(t, func(t *testing.T) {
		loop := load.Loop{Duration: time.Millisecond}
		if r := loop.Run(t.Context(), []load.Worker{late, late}); r.Calls != 2 ||
			r.CallsPerSecond < 1 {
			t.Errorf("%+v, want 2 calls in 1 s", r)
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		if r := loop.Run(canceled, []load.Worker{late}); r.Calls != 0 {
			t.Errorf("%d calls in a loop that is over, want none", r.Calls)
		}
	})
}

// A call that takes half a second must delay all calls that were due meanwhile.
func TestLoopCountsFromWhenACallWasDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		r := load.Loop{Rate: 100, Duration: time.Second}.Run(t.Context(),
			[]load.Worker{{Next: always, Do: func() error {
				if n++; n%50 == 0 {
					time.Sleep(time.Second / 2)
				}
				return nil
			}}})
		if r.Calls != 100 || r.Latency.P90 < 300_000 || r.Service.P90 > 1000 {
			t.Errorf("%+v", r)
		}
	})
}

func TestLoopOfScheduledCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at, made := time.Duration(0), 0
		start := time.Now()
		r := load.Loop{Scheduled: true, Duration: time.Second}.Run(t.Context(), []load.Worker{{
			Next: func() (time.Duration, bool) {
				at += 100 * time.Millisecond
				return at, at <= 2*time.Second
			},
			Do: func() error {
				if time.Since(start) != at {
					t.Errorf("a call that was due after %v was made after %v", at,
						time.Since(start))
				}
				if made++; made == 6 {
					time.Sleep(time.Second)
				}
				return nil
			},
		}})
		if made != 6 || r.Calls != 6 || r.Unsent != 3 {
			t.Errorf("%d calls of the 9 that were due, %+v", made, r)
		}
	})
}

func TestLoopGoesOnAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		do := func() error {
			time.Sleep(time.Millisecond)
			if n++; n <= 2 {
				return errors.New("out of order")
			}
			return nil
		}
		next := func() (time.Duration, bool) { return 0, n < 10 }
		r := load.Loop{Duration: time.Minute}.Run(t.Context(), []load.Worker{{Next: next, Do: do}})
		if r.Calls != 8 || r.Errors != 2 || r.Err() == nil || r.FirstError != "out of order" {
			t.Errorf("%+v", r)
		}
	})
}

func TestCancelEndsTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		begin := time.Now()
		loop := load.Loop{Rate: 1, Duration: time.Hour}
		r := loop.Run(ctx, []load.Worker{{Next: always, Do: func() error { return nil }}})
		if took := time.Since(begin); took != 1500*time.Millisecond || r.Calls != 2 {
			t.Errorf("%d calls in %v, want 2 in 1.5 s", r.Calls, took)
		}
	})
}

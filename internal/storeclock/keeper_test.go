package storeclock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/storeclock"
)

// source is a store's clock that the test sets, and that does not answer while it is down.
type source struct {
	ahead atomic.Int64
	asked atomic.Int64
	down  atomic.Bool
}

func (s *source) ClockAhead(context.Context, func() time.Time) (time.Duration, error) {
	s.asked.Add(1)
	if s.down.Load() {
		return 0, errors.New("down")
	}
	return time.Duration(s.ahead.Load()), nil
}

// keep runs a keeper in a bubble whose time the test advances.
func keep(t *testing.T, opt storeclock.Options) (k *storeclock.Keeper, s *source) {
	s = new(source)
	opt.Source = s
	if opt.Clock == nil {
		opt.Clock = storeclock.New(nil, nil)
	}
	k = storeclock.NewKeeper(opt)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { k.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return k, s
}

// TestKeeperDoubtsAStepUntilItIsSettled makes the source's clock step by a day: the keeper asks it
// each second once it has noticed the step, doubts it all the time, and believes it at once when it
// is back.
func TestKeeperDoubtsAStepUntilItIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := storeclock.New(nil, nil)
		k, s := keep(t, storeclock.Options{Clock: clock})
		k.Measure(t.Context())
		if doubt := clock.Doubt(); doubt != "" {
			t.Fatalf("doubt %q after the first measurement", doubt)
		}
		s.ahead.Store(int64(day))
		time.Sleep(10*time.Second + time.Millisecond)
		if doubt := clock.Doubt(); doubt != storeclock.DoubtStep {
			t.Fatalf("doubt %q after a step of a day", doubt)
		}
		asked := s.asked.Load()
		time.Sleep(20 * time.Second)
		if more := s.asked.Load() - asked; more != 20 {
			t.Errorf("asked %d times in 20 s of doubt, want every second", more)
		}
		s.ahead.Store(0)
		time.Sleep(time.Second)
		if doubt := clock.Doubt(); doubt != "" {
			t.Errorf("doubt %q when the clock is right again", doubt)
		}
	})
}

// TestKeeperSetsTheTimeAtStart starts on a machine whose clock is ahead of the source's: the first
// measurement puts the time back at once, because a node that still had to fall back would take
// events for older than they are. Later ones slow it down.
func TestKeeperSetsTheTimeAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := storeclock.New(nil, nil)
		k, s := keep(t, storeclock.Options{Clock: clock})
		early := clock.Now()
		s.ahead.Store(int64(-900 * time.Millisecond))
		k.Measure(t.Context())
		if now := clock.Now(); now != early-900 {
			t.Errorf("it is %d ms later than the source's time", now-early+900)
		}
		s.ahead.Store(int64(-950 * time.Millisecond))
		k.Measure(t.Context())
		if now := clock.Now(); now != early-900 {
			t.Errorf("the time went back by %d ms", early-900-now)
		}
	})
}

// TestKeeperWithoutAnAnswer goes on as before: an unreachable source is no reason for doubt.
func TestKeeperWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := storeclock.New(nil, nil)
		k, s := keep(t, storeclock.Options{Clock: clock, Interval: 5 * time.Second})
		s.ahead.Store(int64(3 * time.Second))
		k.Measure(t.Context())
		s.down.Store(true)
		s.ahead.Store(int64(day))
		time.Sleep(time.Minute + time.Millisecond)
		if doubt := clock.Doubt(); doubt != "" || s.asked.Load() != 13 {
			t.Errorf("doubt %q after asking %d times, want none after 13", doubt, s.asked.Load())
		}
	})
}

// TestKeeperUntilTheFirstAnswer doubts the machine's own time until the source has answered once,
// and asks every second until then.
func TestKeeperUntilTheFirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := storeclock.New(nil, nil)
		k, s := keep(t, storeclock.Options{Clock: clock})
		s.down.Store(true)
		s.ahead.Store(int64(day))
		k.Measure(t.Context())
		if doubt := clock.Doubt(); doubt != storeclock.DoubtUnmeasured {
			t.Errorf("doubt %q before the first answer", doubt)
		}
		time.Sleep(3*time.Second + time.Millisecond)
		if n := s.asked.Load(); n != 4 {
			t.Errorf("asked %d times in 3 s without an answer, want at the start and each second",
				n)
		}
		s.down.Store(false)
		time.Sleep(time.Second)
		if doubt := clock.Doubt(); doubt != "" ||
			clock.Now() < time.Now().Add(day-time.Second).UnixMilli() {
			t.Errorf("doubt %q after the first answer, at %d", doubt, clock.Now())
		}
	})
}

// TestKeeperRunsSlowlyRatherThanBack checks that the doubt is reported while the clock waits for a
// source that was set back by a settled step.
func TestKeeperRunsSlowlyRatherThanBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := storeclock.New(nil, nil)
		k, s := keep(t, storeclock.Options{Clock: clock})
		k.Measure(t.Context())
		s.ahead.Store(int64(-5 * time.Second))
		time.Sleep(73*time.Second + time.Millisecond) // noticed after 10 s, settled a minute later
		if doubt := clock.Doubt(); doubt != storeclock.DoubtSlow {
			t.Errorf("doubt %q while the clock is ahead of the source's", doubt)
		}
		time.Sleep(10 * time.Second)
		if doubt := clock.Doubt(); doubt != "" {
			t.Errorf("doubt %q once the source has caught up", doubt)
		}
	})
}

// TestKeeperStartsDuringALie has the source's clock a day ahead when the node starts, and right
// after ten minutes: the step is doubted for a minute, then the clock corrects itself.
func TestKeeperStartsDuringALie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := storeclock.New(nil, nil)
		k, s := keep(t, storeclock.Options{Clock: clock})
		s.ahead.Store(int64(day))
		k.Measure(t.Context())
		time.Sleep(10 * time.Minute)
		s.ahead.Store(0)
		time.Sleep(30 * time.Second)
		if doubt := clock.Doubt(); doubt != storeclock.DoubtStep ||
			clock.Now() < time.Now().Add(day-time.Second).UnixMilli() {
			t.Errorf("doubt %q, the clock shows %v", doubt, time.UnixMilli(clock.Now()))
		}
		time.Sleep(time.Minute)
		if doubt := clock.Doubt(); doubt != "" || clock.Now() != time.Now().UnixMilli() {
			t.Errorf("doubt %q, the clock shows %v at %v", doubt, time.UnixMilli(clock.Now()),
				time.Now())
		}
	})
}

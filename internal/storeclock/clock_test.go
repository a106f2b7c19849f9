package storeclock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier/internal/storeclock"
)

const began = 1_763_000_000_000

// driven returns a clock whose monotonic time the test moves. The wall clock is read once and is
// irrelevant afterwards.
func driven() (c *storeclock.Clock, advance func(time.Duration)) {
	var mono atomic.Int64
	wall := time.UnixMilli(began)
	c = storeclock.New(func() time.Time { return wall },
		func() time.Duration { return time.Duration(mono.Load()) })
	return c, func(d time.Duration) { mono.Add(int64(d)) }
}

func at(t *testing.T, c *storeclock.Clock, want int64) {
	t.Helper()
	if got := c.Now() - began; got != want {
		t.Errorf("%d ms after the start, want %d", got, want)
	}
}

func TestClockStepsForward(t *testing.T) {
	c, advance := driven()
	if step := c.Follow(3 * time.Second); step != 3*time.Second {
		t.Errorf("step %v", step)
	}
	at(t, c, 3000)
	advance(time.Second)
	at(t, c, 4000)
	if local := c.Local().UnixMilli() - began; local != 1000 {
		t.Errorf("Local is %d ms after the start: it must not follow the store", local)
	}
	if ahead, skew := c.Offset(); ahead != 3*time.Second || skew != 0 {
		t.Errorf("ahead %v, skew %v", ahead, skew)
	}
}

func TestClockSlowsDownInsteadOfGoingBack(t *testing.T) {
	c, advance := driven()
	c.Follow(10 * time.Second)
	c.Follow(6 * time.Second)
	at(t, c, 10_000)
	advance(2 * time.Second)
	at(t, c, 11_000) // half speed
	if ahead, skew := c.Offset(); ahead != 6*time.Second || skew != 3*time.Second {
		t.Errorf("ahead %v, skew %v, want 6s and 3s", ahead, skew)
	}
	advance(6 * time.Second)
	at(t, c, 14_000) // caught up after 8 s
	advance(time.Second)
	at(t, c, 15_000)
	if _, skew := c.Offset(); skew != 0 {
		t.Errorf("skew %v", skew)
	}
}

// TestClockStepsWhileItSlows corrects the clock while it still carries out an earlier correction,
// both ways.
func TestClockStepsWhileItSlows(t *testing.T) {
	c, advance := driven()
	c.Follow(-4 * time.Second)
	advance(2 * time.Second)
	at(t, c, 1000)
	c.Follow(-6 * time.Second)
	at(t, c, 1000)
	advance(2 * time.Second)
	at(t, c, 2000)
	c.Follow(0)
	at(t, c, 4000)
}

func TestClockIgnoresNoise(t *testing.T) {
	c, advance := driven()
	for _, noise := range []time.Duration{999 * time.Microsecond, -999 * time.Microsecond} {
		if step := c.Follow(noise); step != noise {
			t.Errorf("step %v, want %v", step, noise)
		}
		if ahead, skew := c.Offset(); ahead != 0 || skew != 0 {
			t.Errorf("followed %v: ahead %v, skew %v", noise, ahead, skew)
		}
	}
	c.Follow(time.Millisecond)
	advance(time.Second)
	at(t, c, 1001)
}

// TestClockNeverGoesBackForAnyReader reads from several goroutines while the clock is corrected in
// both directions.
func TestClockNeverGoesBackForAnyReader(t *testing.T) {
	c, advance := driven()
	var done atomic.Bool
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			last := int64(0)
			for !done.Load() {
				now := c.Now()
				if now < last {
					t.Errorf("%d after %d", now, last)
					return
				}
				last = now
			}
		})
	}
	for i := range 20_000 {
		advance(300 * time.Microsecond)
		c.Follow(time.Duration(i*7919%4001-2000) * time.Millisecond)
	}
	done.Store(true)
	wg.Wait()
}

// TestClockIsSetBack sets a clock that followed a wrong time: it shows the right one at once, and
// never goes back from there.
func TestClockIsSetBack(t *testing.T) {
	c, advance := driven()
	c.Follow(day)
	at(t, c, day.Milliseconds())
	if step := c.Set(2 * time.Second); step != 2*time.Second-day {
		t.Errorf("a step of %v", step)
	}
	at(t, c, 2000)
	advance(time.Second)
	at(t, c, 3000)
	if ahead, skew := c.Offset(); ahead != 2*time.Second || skew != 0 {
		t.Errorf("ahead %v, skew %v", ahead, skew)
	}
	c.Follow(time.Second)
	at(t, c, 3000)
}

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
func keep(t *testing.T, interval time.Duration) (*storeclock.Clock, *storeclock.Keeper, *source) {
	clock, s := storeclock.New(nil, nil), new(source)
	k := storeclock.NewKeeper(storeclock.Options{Clock: clock, Source: s, Interval: interval})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { k.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return clock, k, s
}

// TestKeeperDoubtsAStepUntilItIsSettled makes the source's clock step by a day: the keeper asks it
// each second once it has noticed the step, doubts it all the time, and believes it at once when it
// is back.
func TestKeeperDoubtsAStepUntilItIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock, k, s := keep(t, 0)
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
		clock, k, s := keep(t, 0)
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
		clock, k, s := keep(t, 5*time.Second)
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
		clock, k, s := keep(t, 0)
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
		clock, k, s := keep(t, 0)
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
		clock, k, s := keep(t, 0)
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

package storeclock_test

import (
	"sync"
	"sync/atomic"
	"testing"
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

func TestClockRunsWithMonotonicTime(t *testing.T) {
	c, advance := driven()
	at(t, c, 0)
	at(t, c, 0)
	advance(1500 * time.Millisecond)
	at(t, c, 1500)
	if local := c.Local().UnixMilli() - began; local != 1500 {
		t.Errorf("Local is %d ms after the start", local)
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

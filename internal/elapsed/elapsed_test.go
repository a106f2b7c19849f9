package elapsed_test

import (
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"twotier.dev/twotier/internal/elapsed"
)

func TestClockCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c elapsed.Clock
		for _, want := range []time.Duration{0, 0, time.Second, time.Hour} {
			time.Sleep(want - c.Now())
			if got := c.Now(); got != want {
				t.Errorf("%v, want %v", got, want)
			}
		}
	})
}

// TestBetween covers cases in which the wall clock and the monotonic clock differ. A time without a
// monotonic reading stands for the wall clock, because Sub then uses nothing else.
func TestBetween(t *testing.T) {
	now := time.Now()
	wall := now.Round(0)
	for _, test := range []struct {
		later time.Time
		want  time.Duration
	}{{now, 0}, {now.Add(time.Second), time.Second}, {now.Add(-time.Second), 0},
		{wall.Add(time.Hour), time.Hour}} {
		if got := elapsed.Between(now, test.later); got != test.want {
			t.Errorf("%v: %v, want %v", test.later, got, test.want)
		}
	}
}

// monotonically returns now with only its monotonic reading moved by d.
func monotonically(now time.Time, d time.Duration) time.Time {
	(*struct { // the layout of time.Time
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&now)).ext += int64(d)
	return now
}

// TestSuspended advances only the wall clock between two readings, as when the machine was
// suspended, or only the monotonic one, as when the wall clock was set back.
func TestSuspended(t *testing.T) {
	awake := time.Now()
	ahead := monotonically(awake, time.Hour)
	if mono, wall := ahead.Sub(awake), ahead.Round(0).Sub(awake.Round(0)); mono != time.Hour ||
		wall != 0 {
		t.Fatalf("the clocks differ by %v and %v: package time has another layout", mono, wall)
	}
	if got := elapsed.Between(awake, ahead); got != time.Hour {
		t.Errorf("%v by the monotonic clock alone, want an hour", got)
	}
	resumed := monotonically(awake.Add(2*time.Hour), -2*time.Hour)
	if got := elapsed.Between(awake, resumed); got != 2*time.Hour {
		t.Errorf("%v by the wall clock alone, want two hours", got)
	}
}

// TestAsleepStandsStill checks that Asleep doesn't grow while the machine is awake to run the test.
func TestAsleepStandsStill(t *testing.T) {
	before := elapsed.Asleep()
	for range 100 {
		if nap := elapsed.Asleep() - before; nap < -time.Second || nap > time.Second {
			t.Fatalf("slept for %v meanwhile", nap)
		}
	}
}

// TestPulse lets time pass between two beats by both clocks, by the wall clock alone, as during a
// suspension of the machine, or by the monotonic clock alone. Only a gap longer than LongestGap is
// a standstill, and it shows before the next beat: to Covers if the counter's clock has advanced
// too, and to HasRunSince in any case.
func TestPulse(t *testing.T) {
	for name, test := range map[string]struct {
		wall, mono time.Duration
		stopped    bool
	}{
		"a beat":               {elapsed.BeatInterval, elapsed.BeatInterval, false},
		"a late beat":          {elapsed.LongestGap, elapsed.LongestGap, false},
		"a stopped process":    {2 * time.Second, 2 * time.Second, true},
		"a suspended machine":  {time.Hour, time.Millisecond, true},
		"a wall clock set":     {-time.Hour, elapsed.BeatInterval, false},
		"set while it stopped": {-time.Hour, time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			now, counter, forgotten := time.Now(), int64(1_000_000), 0
			p := elapsed.NewPulse(func() time.Time { return now }, func() int64 { return counter })
			if p.Covers(counter) || p.HasRunSince(0) {
				t.Error("it runs before the first beat")
			}
			forget := func() {
				forgotten++
				if p.Covers(counter) {
					t.Error("it covers the present while all is being forgotten")
				}
			}
			p.Beat(forget)
			began := p.Stops()
			if !p.Covers(counter) || !p.HasRunSince(began) || forgotten > 0 {
				t.Error("it does not run after the first beat")
			}
			now = monotonically(now.Add(test.wall), test.mono-test.wall)
			counter += test.mono.Milliseconds()
			if p.HasRunSince(began) == test.stopped {
				t.Errorf("before the next beat: stopped %v", !test.stopped)
			}
			if want := test.mono <= elapsed.LongestGap; p.Covers(counter) != want {
				t.Errorf("before the next beat: covers the present %v", !want)
			}
			p.Beat(forget)
			if (forgotten > 0) != test.stopped || p.HasRunSince(began) == test.stopped {
				t.Errorf("after the next beat: forgotten %d times, stopped %v", forgotten,
					!p.HasRunSince(began))
			}
			if !p.Covers(counter) || !p.HasRunSince(p.Stops()) {
				t.Error("it does not go on after the next beat")
			}
		})
	}
}

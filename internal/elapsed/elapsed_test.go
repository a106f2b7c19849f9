package elapsed_test

import (
	"testing"
	"testing/synctest"
	"time"

	"twotier/internal/elapsed"
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

// TestBetween has the wall clock and the monotonic one differ. A time without a monotonic reading stands for a wall clock: Sub then
// uses nothing else.
func TestBetween(t *testing.T) {
	now := time.Now()
	wall := now.Round(0)
	for _, test := range []struct {
		later time.Time
		want  time.Duration
	}{{now, 0}, {now.Add(time.Second), time.Second}, {now.Add(-time.Second), 0}, {wall.Add(time.Hour), time.Hour}} {
		if got := elapsed.Between(now, test.later); got != test.want {
			t.Errorf("%v: %v, want %v", test.later, got, test.want)
		}
	}
}

// TestAsleepStandsStill: a machine that runs this test is awake.
func TestAsleepStandsStill(t *testing.T) {
	before := elapsed.Asleep()
	for range 100 {
		if nap := elapsed.Asleep() - before; nap < -time.Second || nap > time.Second {
			t.Fatalf("slept for %v meanwhile", nap)
		}
	}
}

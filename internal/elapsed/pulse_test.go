package elapsed_test

import (
	"testing"
	"time"

	"twotier.dev/twotier/internal/elapsed"
)

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

package syncer

import (
	"testing"
	"time"
	"twotier.dev/twotier/syncer/internal/rounds"
)

// TestReadWidthFollowsThePace reads from a store that takes some time for each bucket. Once the
// pace is known, no exchange takes longer than allowed, whatever the pace was before.
func TestReadWidthFollowsThePace(t *testing.T) {
	const timeout = time.Second
	w := newReadWidth(timeout)
	for _, each := range []time.Duration{100 * time.Nanosecond, time.Microsecond,
		50 * time.Microsecond, time.Millisecond, 2 * time.Microsecond} {
		widest := 0
		for i := range 60 {
			w.begin()
			reads := w.remaining()
			w.add(&rounds.Round{Reads: reads})
			took := time.Duration(reads) * each
			if i > 20 && took > timeout {
				t.Fatalf("%v each: exchange %d takes %v", each, i, took)
			}
			if took > timeout { // it is cut off
				reads, took = int(timeout/each), timeout
			}
			w.record(reads, took)
			widest = max(widest, w.most)
		}
		if least := min(mostReads, int(timeout/8/each)); widest < least {
			t.Errorf("%v each: at most %d at once, want %d", each, widest, least)
		}
	}
}

// TestReadWidthIgnoresWhatIsSmall: an exchange that is far from full reveals nothing about the
// pace, however long the way to the store is.
func TestReadWidthIgnoresWhatIsSmall(t *testing.T) {
	w := newReadWidth(time.Second)
	for range 100 {
		w.begin()
		w.add(&rounds.Round{Reads: rounds.ReadsOfKey})
		w.record(rounds.ReadsOfKey, 300*time.Millisecond)
	}
	if w.most != firstReads {
		t.Errorf("at most %d at once, want %d", w.most, firstReads)
	}
}

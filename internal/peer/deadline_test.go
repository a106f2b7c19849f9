package peer_test

import (
	"slices"
	"testing"
	"time"
	"unsafe"

	"twotier.dev/twotier/internal/peer"
)

// monotonically returns a time with only its monotonic reading moved by d.
func monotonically(t time.Time, d time.Duration) time.Time {
	(*struct { // the layout of time.Time
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&t)).ext += int64(d)
	return t
}

// TestDeadlinesInAnotherOrderByTheWallClock sends calls whose deadlines have another order by the
// wall clock than by the monotonic one, as when the wall clock is set back between them: no call
// ends earlier than the earliest deadline.
func TestDeadlinesInAnotherOrderByTheWallClock(t *testing.T) {
	now := time.Now()
	by := now.Add(time.Second)
	for _, apart := range []time.Duration{3 * time.Microsecond, time.Millisecond} {
		earlier := monotonically(by, -apart).Add(2 * time.Microsecond)
		want := by.Sub(earlier) + time.Microsecond
		for _, order := range [][]time.Time{{by, earlier}, {earlier, by}} {
			if got := peer.Leads(now, order...); !slices.Equal(got, []time.Duration{want, want}) {
				t.Errorf("%v apart: the calls end %v before the message, want %v", apart, got, want)
			}
		}
	}
}

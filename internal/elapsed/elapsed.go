// Package elapsed measures how much time has passed, including what a machine slept through.
//
// The monotonic clock that [time.Time] carries stands still while a machine is suspended (CLOCK_MONOTONIC), and the wall clock
// may be set back. A [Clock] takes whichever of the two has gone on further since it was read last: it never goes
// backwards, and what happens while nobody looks is never shorter than it was. A wall clock that is set forward looks like
// a pause, so a Clock is for deciding that something is over: a lease, a deadline of another node, a reservation.
//
// A Clock may be used by several goroutines.
package elapsed

import (
	"sync"
	"time"
)

// Clock counts the time that passes. The zero value is ready and starts when it is first read.
type Clock struct {
	mu     sync.Mutex
	last   time.Time
	passed time.Duration
}

// Now returns the time that has passed since the first reading.
func (c *Clock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if !c.last.IsZero() {
		c.passed += Between(c.last, now)
	}
	c.last = now
	return c.passed
}

// Between returns the time between two readings of [time.Now], by the clock that counted more of it; at least 0.
func Between(earlier, later time.Time) time.Duration {
	return max(0, later.Sub(earlier), later.Round(0).Sub(earlier.Round(0)))
}

// Suspended returns how much of the time between two readings of [time.Now] the monotonic clock did not see: the machine was
// suspended, or its wall clock was set forward.
func Suspended(earlier, later time.Time) time.Duration {
	return max(0, later.Round(0).Sub(earlier.Round(0))-later.Sub(earlier))
}

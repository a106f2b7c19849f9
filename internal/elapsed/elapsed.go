package elapsed

import (
	"sync"
	"time"
)

// Clock measures elapsed time. The zero value is ready to use and starts when it is first read.
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

// Between returns the time between two readings of [time.Now], by the monotonic or the wall clock,
// whichever advanced further. It is at least 0.
func Between(earlier, later time.Time) time.Duration {
	return max(0, later.Sub(earlier), later.Round(0).Sub(earlier.Round(0)))
}

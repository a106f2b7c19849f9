package connect

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier/internal/durations"
)

// Condition records whether Redis can be used, and how fast it is.
type Condition struct {
	// RoundTrips is the number of pipelines sent.
	RoundTrips atomic.Int64
	// Times has how long pipelines with scripts took.
	Times durations.Histogram
	rtt   atomic.Int64 // microseconds

	mu     sync.Mutex
	failed error // why Redis could not be used at the last exchange, nil if it could
	silent error // why it has not returned its time since, nil if it has
}

// SetFailed records why the last exchange failed, nil if it did not.
func (c *Condition) SetFailed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = err
	if err == nil {
		c.silent = nil
	}
}

// SetClockFailure records why Redis did not return its time, which is how a node that has nothing
// to exchange learns that Redis is gone. A later success clears only this error: Redis may still
// refuse exchanges.
func (c *Condition) SetClockFailure(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = err
}

// Failure returns why Redis can't be used right now, or nil if it can.
func (c *Condition) Failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(c.failed, c.silent)
}

// SetRTT records the shortest round trip of a measurement.
func (c *Condition) SetRTT(d time.Duration) { c.rtt.Store(d.Microseconds()) }

// RTT returns the shortest round trip of the last measurement.
func (c *Condition) RTT() time.Duration { return time.Duration(c.rtt.Load()) * time.Microsecond }

// Durations returns a histogram of how long pipelines with scripts took.
func (c *Condition) Durations() durations.Snapshot { return c.Times.Snapshot() }

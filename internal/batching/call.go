package batching

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"
)

// Call is what a [Queue] knows of a call; embed it. Reset comes first, then Put and Wait.
type Call struct {
	taken atomic.Bool
	done  chan struct{} // holds one
	timer *time.Timer
	err   error
}

// ErrTime says that there was no more time to wait.
var ErrTime = errors.New("the time for it was up")

// Outcome says what who waits for a call knows of it.
type Outcome uint8

// The outcomes.
const (
	// Finished: a lane has finished the call, or it was drained. It may be reset and used again.
	Finished Outcome = iota
	// Withdrawn: it has not been sent, and never will be. The queue may hold on to it.
	Withdrawn
	// Left: a lane has it, and may still be using it. Nobody knows what becomes of it.
	Left
)

// Reset makes it a call that was not put into a queue yet.
func (c *Call) Reset() {
	if c.done == nil {
		c.done = make(chan struct{}, 1)
	}
	c.taken.Store(false)
	c.err = nil
}

// Take reports whether the call is the caller's from now on: only the first one gets it.
func (c *Call) Take() bool { return !c.taken.Swap(true) }

// Finish tells who waits for it that the call is over. Who has taken it does so once, and does not
// touch it any more.
func (c *Call) Finish(err error) {
	c.err = err
	c.done <- struct{}{}
}

// Forever is how long who has no other bound than a context waits.
const Forever = time.Duration(math.MaxInt64)

// Wait waits until the call is finished or ctx is done, and no longer than that. The error is that
// of a finished call, or else why it was not waited for any longer.
func (c *Call) Wait(ctx context.Context, atMost time.Duration) (Outcome, error) {
	var late <-chan time.Time
	if atMost != Forever {
		late = c.alarm(atMost)
		defer c.timer.Stop()
	}
	why := ErrTime
	select {
	case <-c.done:
		return Finished, c.err
	case <-ctx.Done():
		why = ctx.Err()
	case <-late:
	}
	if c.Take() {
		return Withdrawn, why
	}
	select {
	case <-c.done: // just in time
		return Finished, c.err
	default:
		return Left, why
	}
}

// alarm sets the timer of the call, which is kept with it.
func (c *Call) alarm(after time.Duration) <-chan time.Time {
	if c.timer == nil {
		c.timer = time.NewTimer(after)
	} else {
		c.timer.Reset(after)
	}
	return c.timer.C
}

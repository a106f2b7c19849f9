package batching

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"
)

// Call is the part of a call that a [Queue] works with. Embed it. Use it in the order Reset, Put,
// Wait.
type Call struct {
	taken atomic.Bool
	done  chan struct{} // buffered, size 1
	timer *time.Timer
	err   error
}

// ErrTime is returned by Wait when the time to wait was over.
var ErrTime = errors.New("the time for it was up")

// Outcome says what the waiting caller knows about a call.
type Outcome uint8

// The outcomes.
const (
	// Finished: a lane has finished the call, or it was drained. It may be reset and used again.
	Finished Outcome = iota
	// Withdrawn: the call was not sent, and never will be. The queue may still hold on to it.
	Withdrawn
	// Left: a lane has taken the call and may still be using it. Its outcome is unknown.
	Left
)

// Reset prepares the call to be put into a queue.
func (c *Call) Reset() {
	if c.done == nil {
		c.done = make(chan struct{}, 1)
	}
	c.taken.Store(false)
	c.err = nil
}

// Take reports whether the call now belongs to the caller of Take. Only the first caller gets true.
func (c *Call) Take() bool { return !c.taken.Swap(true) }

// Finish tells the waiting caller that the call is over. Whoever has taken the call calls Finish
// exactly once, and must not touch the call afterwards.
func (c *Call) Finish(err error) {
	c.err = err
	c.done <- struct{}{}
}

// Forever means that a wait is bounded by its context only.
const Forever = time.Duration(math.MaxInt64)

// Wait waits until the call is finished, ctx is done, or atMost has passed. The error is that of
// the finished call, or else the reason why Wait gave up.
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
	case <-c.done: // finished just in time
		return Finished, c.err
	default:
		return Left, why
	}
}

// alarm sets the timer, which is kept with the call and reused.
func (c *Call) alarm(after time.Duration) <-chan time.Time {
	if c.timer == nil {
		c.timer = time.NewTimer(after)
	} else {
		c.timer.Reset(after)
	}
	return c.timer.C
}

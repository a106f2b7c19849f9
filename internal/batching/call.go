package batching

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"
)

// Call is the part of a call that a [Queue] works with. Embed it. Use it in the order Reset, Put,
// Wait. A caller of several concurrent calls uses ResetTo, and Finished in place of Wait.
type Call struct {
	taken, finished atomic.Bool
	// done is signaled after the call has finished. A signal may stem from an earlier call, so
	// check finished. It has room for one signal.
	done  chan struct{}
	own   chan struct{} // done of a call that shares it with no other; nil until it is needed
	timer *time.Timer
	err   error
}

// ErrTime is returned by Wait when the time to wait is over.
var ErrTime = errors.New("the time for it was up")

// Outcome is the state of a call from the view of its caller.
type Outcome uint8

// The outcomes.
const (
	// Finished: a worker has finished the call, or it was drained. It may be reset and used again.
	Finished Outcome = iota
	// Withdrawn: the call was not sent, and never will be. The queue may still hold on to it.
	Withdrawn
	// Left: a worker has taken the call and may still use it. Its outcome is unknown.
	Left
)

// Reset prepares the call to be put into a queue.
func (c *Call) Reset() {
	if c.own == nil {
		c.own = make(chan struct{}, 1)
	}
	c.ResetTo(c.own)
}

// ResetTo is Reset for one of several concurrent calls of a caller: done, which has room for one
// signal, is signaled when any of them has finished.
func (c *Call) ResetTo(done chan struct{}) {
	c.taken.Store(false)
	c.finished.Store(false)
	c.done, c.err = done, nil
}

// Take claims the call and reports whether it now belongs to the caller of Take. Only the first
// claim succeeds.
func (c *Call) Take() bool { return !c.taken.Swap(true) }

// Finish ends the call with err and wakes its caller. The goroutine that has taken the call calls
// Finish exactly once, and must not touch the call afterwards.
func (c *Call) Finish(err error) {
	done := c.done
	c.err = err
	c.finished.Store(true) // from now on, the caller may use the call again
	select {
	case done <- struct{}{}:
	default: // the caller has yet to look
	}
}

// Finished reports whether the call is over, and returns its error.
func (c *Call) Finished() (over bool, err error) {
	if !c.finished.Load() {
		return false, nil
	}
	return true, c.err
}

// Forever leaves a wait bounded by its context alone.
const Forever = time.Duration(math.MaxInt64)

// Wait waits until the call is finished, ctx is done, or atMost has passed. It returns the error of
// the finished call, or else the reason why Wait gave up.
func (c *Call) Wait(ctx context.Context, atMost time.Duration) (Outcome, error) {
	var late <-chan time.Time
	if atMost != Forever {
		late = c.startTimer(atMost)
		defer c.timer.Stop()
	}
	for {
		select {
		case <-c.done:
			if over, err := c.Finished(); over {
				return Finished, err
			}
		case <-ctx.Done():
			return c.GiveUp(ctx.Err())
		case <-late:
			return c.GiveUp(ErrTime)
		}
	}
}

// GiveUp ends the wait for a call that may be unfinished. It returns the error of the finished
// call, or else why.
func (c *Call) GiveUp(why error) (Outcome, error) {
	if c.Take() {
		return Withdrawn, why
	}
	if over, err := c.Finished(); over { // just in time
		return Finished, err
	}
	return Left, why
}

// startTimer sets the timer, which the call keeps and reuses.
func (c *Call) startTimer(after time.Duration) <-chan time.Time {
	if c.timer == nil {
		c.timer = time.NewTimer(after)
	} else {
		c.timer.Reset(after)
	}
	return c.timer.C
}

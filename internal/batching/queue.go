package batching

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Item is an element of a [Queue]: a pointer to a struct that embeds [Call], which provides Take
// and Finish, and that reports its size.
type Item interface {
	Take() bool
	Finish(err error)
	// Size returns the number of operations in the call, and its size in bytes.
	Size() (ops, bytes int)
}

// Options configure a [Queue].
type Options struct {
	// Waiting is the maximum number of waiting calls.
	Waiting int
	// Ops and Bytes are the size at which a batch is full. The last call may exceed it. 0 means no
	// bound.
	Ops, Bytes int
	// Refused returns the reason why calls can't wait at present, or nil if they can. Once it
	// begins to return an error, Drain must be called. Default: always nil.
	Refused func() error
	// Before is called by a worker between the first call of a batch and the others, so that more
	// calls can arrive. Default: nothing.
	Before func()
}

// Queue holds calls until they are sent in a batch. Its methods may be called concurrently.
type Queue[C Item] struct {
	opt   Options
	calls chan C

	closing sync.Once
	closed  chan struct{}
	why     error // reason for closing; set before closed is
}

// ErrFull is returned by Put and PutWait while the maximum number of calls waits.
var ErrFull = errors.New("too many calls wait")

// New returns an empty queue.
func New[C Item](opt Options) *Queue[C] {
	return &Queue[C]{opt: opt, calls: make(chan C, opt.Waiting), closed: make(chan struct{})}
}

// Put adds a call to the queue. An error (ErrFull, or the error given to Close) means that the call
// is not sent; it must not be used again. If Options.Refused returns an error, Put returns nil and
// the call is finished with that error.
func (q *Queue[C]) Put(c C) error {
	if q.ended() {
		return q.why
	}
	select {
	case q.calls <- c:
		return q.checkStranded(c)
	default:
		return ErrFull
	}
}

// PutWait is like Put, but waits for room until ctx is done.
func (q *Queue[C]) PutWait(ctx context.Context, c C) error {
	if err := q.Put(c); !errors.Is(err, ErrFull) {
		return err
	}
	select {
	case q.calls <- c:
		return q.checkStranded(c)
	case <-q.closed:
		return q.why
	case <-ctx.Done():
		return ErrFull
	}
}

// checkStranded makes sure that a call just put in is not stranded. Before it was in, calls may
// have been refused and the queue drained, or the queue closed and the last worker ended. Then no
// other goroutine would ever take it.
func (q *Queue[C]) checkStranded(c C) error {
	if q.opt.Refused != nil {
		if err := q.opt.Refused(); err != nil {
			q.FailWaiting(err)
			return nil
		}
	}
	if q.ended() && c.Take() {
		return q.why
	}
	return nil
}

func (q *Queue[C]) ended() bool {
	select {
	case <-q.closed:
		return true
	default:
		return false
	}
}

// FailWaiting finishes all waiting calls with err.
func (q *Queue[C]) FailWaiting(err error) {
	for {
		select {
		case c := <-q.calls:
			if c.Take() {
				c.Finish(err)
			}
		default:
			return
		}
	}
}

// Close refuses further calls with err. Workers still send the waiting calls and then end. Close
// may be called twice.
func (q *Queue[C]) Close(err error) {
	q.closing.Do(func() {
		q.why = err
		close(q.closed)
	})
}

// Run is a worker: it calls send with the waiting calls, one batch at a time, until the queue or
// stop is closed. stop may be nil. send finishes each call of the batch, and must not keep the
// slice.
func (q *Queue[C]) Run(stop <-chan struct{}, send func(batch []C)) {
	var batch []C
	for {
		select {
		case c := <-q.calls:
			batch = q.gather(batch[:0], c)
		case <-stop:
			return
		case <-q.closed:
			select {
			case c := <-q.calls:
				batch = q.gather(batch[:0], c)
			default:
				return
			}
		}
		if len(batch) > 0 {
			send(batch)
			clear(batch) // don't keep calls that are reused by their makers
		}
	}
}

// gather returns a batch of c and the waiting calls that fit.
func (q *Queue[C]) gather(batch []C, c C) []C {
	if q.opt.Before != nil {
		q.opt.Before()
	}
	ops, bytes := 0, 0
	for {
		if c.Take() {
			batch = append(batch, c)
			o, b := c.Size()
			ops, bytes = ops+o, bytes+b
		}
		if q.opt.Ops > 0 && ops >= q.opt.Ops || q.opt.Bytes > 0 && bytes >= q.opt.Bytes {
			return batch
		}
		select {
		case c = <-q.calls:
		default:
			return batch
		}
	}
}

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

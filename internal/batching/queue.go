package batching

import (
	"context"
	"errors"
	"sync"
)

// Item is a call of which a [Queue] is made: a pointer to what embeds a [Call], whose Take and
// Finish it has, and which says how large it is.
type Item interface {
	Take() bool
	Finish(err error)
	// Size returns how many operations the call is, and how many bytes it takes.
	Size() (ops, bytes int)
}

// Options configure a [Queue].
type Options struct {
	// Waiting is how many calls may wait.
	Waiting int
	// Ops and Bytes are the size from which on a batch takes no further call: it may be larger by
	// what the last one is. 0 is no bound.
	Ops, Bytes int
	// Refused returns why no call may wait at this moment, nil if it may. Once it returns an error,
	// Drain has to be called. Default: they may.
	Refused func() error
	// Before is what a lane does when it has the first call of a batch, before it takes the others
	// that wait. Default: nothing.
	Before func()
}

// Queue is calls that wait for a batch. Its methods may be called at the same time.
type Queue[C Item] struct {
	opt   Options
	calls chan C

	closing sync.Once
	closed  chan struct{}
	why     error // it is closed; set before it is
}

// ErrFull says that as many calls wait as may.
var ErrFull = errors.New("too many calls wait")

// New returns an empty queue.
func New[C Item](opt Options) *Queue[C] {
	return &Queue[C]{opt: opt, calls: make(chan C, opt.Waiting), closed: make(chan struct{})}
}

// Put has a call wait. An error, which is ErrFull or that of Close, says that it is not sent: it
// must not be used again. One that is refused for the reason of the options is finished with it.
func (q *Queue[C]) Put(c C) error {
	if q.ended() {
		return q.why
	}
	select {
	case q.calls <- c:
		return q.stays(c)
	default:
		return ErrFull
	}
}

// PutWait is Put for who may wait for room, until ctx is done.
func (q *Queue[C]) PutWait(ctx context.Context, c C) error {
	if err := q.Put(c); !errors.Is(err, ErrFull) {
		return err
	}
	select {
	case q.calls <- c:
		return q.stays(c)
	case <-q.closed:
		return q.why
	case <-ctx.Done():
		return ErrFull
	}
}

// stays makes sure that a call that was just put in is not there for good. What refuses calls may
// have begun, and others been drained, or the last lane have ended, before it was in: nobody else
// would come for it then.
func (q *Queue[C]) stays(c C) error {
	if q.opt.Refused != nil {
		if err := q.opt.Refused(); err != nil {
			q.Drain(err)
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

// Drain finishes all that wait.
func (q *Queue[C]) Drain(err error) {
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

// Close refuses further calls with that error. Those that wait are still sent; then lanes end. It
// may be called twice.
func (q *Queue[C]) Close(err error) {
	q.closing.Do(func() {
		q.why = err
		close(q.closed)
	})
}

// Run is a lane: it calls send with what waits, one batch at a time, until the queue is closed or
// stop is, which may be nil. send finishes each call of the batch, and keeps nothing of it.
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
			clear(batch) // calls go back to their makers
		}
	}
}

// gather takes a call and whatever else waits, as far as it fits.
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

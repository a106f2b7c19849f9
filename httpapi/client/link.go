package client

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"twotier.dev/twotier/internal/batching"
)

// askers is the number of questions, not counting operations, that may be in flight to a node.
const askers = 4

// link is the client's connection state for one node.
type link struct {
	c       *Client
	address string
	fast    *batching.Queue[*call]
	slow    *batching.Queue[*call]
	asking  chan *nodeConn // free connections for questions
	fit     sizeLimit
	contact contact
	// up is cleared when the node does not answer. Then nothing is sent to it if another node can
	// take it.
	up atomic.Bool

	ctx  context.Context // done when the client is closed, or the node is no longer a member
	stop context.CancelFunc
}

func newLink(c *Client, address string) *link {
	l := &link{c: c, address: address, asking: make(chan *nodeConn, askers)}
	opt := batching.Options{Waiting: c.opt.MaxWaiting, Ops: c.opt.MaxBatch, Bytes: maxBody,
		Refused: l.refusalReason}
	l.fast, l.slow = batching.New[*call](opt), batching.New[*call](opt)
	l.up.Store(true)
	l.ctx, l.stop = context.WithCancel(c.ctx)
	for range askers {
		l.asking <- newNodeConn(address, &c.opt)
	}
	for range c.opt.Lanes {
		c.running.Go(func() { newLane(l).run(l.fast) })
		c.running.Go(func() { newLane(l).run(l.slow) })
	}
	c.running.Go(l.runEnd)
	return l
}

// runEnd stops the lanes and closes the connections for questions when the link ends.
func (l *link) runEnd() {
	<-l.ctx.Done()
	l.drain()
	l.fast.Close(errNotDone)
	l.slow.Close(errNotDone)
	for range askers {
		w := <-l.asking
		w.close()
	}
}

// refusalReason returns the reason why no call may wait: no lane would send it.
func (l *link) refusalReason() error {
	if l.ctx.Err() != nil {
		return errNotDone
	}
	return nil
}

// submit puts a call into the queue for a lane.
func (l *link) submit(k *call, slow bool) error {
	queue := l.fast
	if slow {
		queue = l.slow
	}
	err := queue.Put(k)
	if errors.Is(err, batching.ErrFull) {
		return fmt.Errorf("%w: %d calls wait for %s", ErrOverloaded, l.c.opt.MaxWaiting, l.address)
	}
	return err
}

// drain gives all waiting calls back to their callers.
func (l *link) drain() {
	l.fast.FailWaiting(errNotDone)
	l.slow.FailWaiting(errNotDone)
}

// recordFailure records that the node did not answer, and gives back the calls that wait for it, so
// that other nodes can take them.
func (l *link) recordFailure(err error) {
	if l.ctx.Err() != nil {
		return
	}
	l.down(err)
	l.drain()
	l.c.refresh(nil)
}

func (l *link) down(err error) {
	if l.up.Swap(false) {
		l.c.opt.Logger.Warn("a node does not answer: falling back", "address", l.address,
			"error", err)
	}
}

// recordSuccess records that the node answered.
func (l *link) recordSuccess() {
	if !l.up.Load() && !l.up.Swap(true) {
		l.c.opt.Logger.Info("a node answers again", "address", l.address)
	}
}

// ask sends a request that is not an operation, and returns the status and a copy of the answer.
// lost reports that an attempt, maybe the only one, had no answer: the node may have executed it.
func (l *link) ask(ctx context.Context, method, uri string, body []byte,
	by time.Time) (status int, answer []byte, lost bool, err error) {
	var w *nodeConn
	select {
	case w = <-l.asking:
	case <-ctx.Done():
		return 0, nil, false, fmt.Errorf("%w: %w", errDial, ctx.Err())
	case <-l.ctx.Done():
		return 0, nil, false, fmt.Errorf("%w: %w", errDial, ErrClosed)
	}
	defer func() { l.asking <- w }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.c.cut, cancel)()
	w.request.Header.SetMethod(method)
	w.request.Header.SetContentType("application/json")
	w.request.SetRequestURI(uri)
	w.request.SetBodyRaw(body)
	w.request.Header.Del("Content-Length") // a GET would keep that of the request before it
	for range 2 {                          // a connection that was kept open may be closed by now
		kept := w.conn != nil
		l.contact.recordRequest(time.Now())
		e := w.send(ctx, by)
		l.contact.recordOutcome(&w.answer, e)
		if e == nil {
			return w.answer.StatusCode(), append([]byte(nil), w.answer.Body()...), lost, nil
		}
		err = e
		lost = lost || !errors.Is(e, errDial)
		if !kept || ctx.Err() != nil {
			break
		}
	}
	return 0, nil, lost, err
}

package hotkeys

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// RecallRequest asks a node to store its counts of a key for the key's owner.
type RecallRequest struct{ NS, Key []byte }

// recallTimeout bounds the time until the other nodes have stored their counts and this node has
// read them.
const recallTimeout = time.Second

// recall is one recall of a key. err is set when done is closed.
type recall struct {
	done chan struct{}
	err  error
}

// wait waits for the recall. The error wraps twotier.ErrUnavailable.
func (r *recall) wait(ctx context.Context) error {
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return errRecallLate
	}
}

var errRecallLate = fmt.Errorf("%w: what others have counted of a key has not come in time",
	twotier.ErrUnavailable)

// joinRecall returns a recall of a key that begins now or later. Callers that arrive during a
// recall share the next one.
func (t *Tracker) joinRecall(c *twotier.Check) *recall {
	name := string(c.AppendName(nil))
	t.mu.Lock()
	next, running := t.recalls[name]
	if next == nil {
		next = &recall{done: make(chan struct{})}
		t.recalls[name] = next
	}
	t.mu.Unlock()
	if !running {
		key := twotier.Check{NS: bytes.Clone(c.NS), Key: bytes.Clone(c.Key)}
		t.opt.Go(func(ctx context.Context) { t.runRecalls(ctx, name, &key) })
	}
	return next
}

// runRecalls recalls a key until no caller is waiting.
func (t *Tracker) runRecalls(ctx context.Context, name string, c *twotier.Check) {
	for {
		t.mu.Lock()
		r := t.recalls[name]
		if t.recalls[name] = nil; r == nil {
			delete(t.recalls, name)
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
		r.err = t.recall(ctx, c)
		close(r.done)
	}
}

// recall has all other nodes store their counts of a key, and then reads the key.
func (t *Tracker) recall(ctx context.Context, c *twotier.Check) error {
	ctx, cancel := context.WithTimeout(ctx, recallTimeout)
	defer cancel()
	var mu sync.Mutex
	var failed error
	rpc.Broadcast(ctx, t.opt.Table(), recallTimeout, func(ctx context.Context, m *ring.Member) {
		err := t.opt.Peers.Ask(ctx, m, &RecallRequest{NS: c.NS, Key: c.Key}, nil)
		if err == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		failed = fmt.Errorf("%w: node %s, which may have counted this key, has not stored it: %v",
			twotier.ErrUnavailable, m.ID, err)
	})
	if failed != nil {
		return failed
	}
	return t.opt.Counter.CatchUp(ctx, c)
}

// ServeRecall answers another node's Recall.
func (t *Tracker) ServeRecall(ctx context.Context, q *RecallRequest) error {
	return t.opt.Counter.CatchUp(ctx, &twotier.Check{NS: q.NS, Key: q.Key})
}

// RecallingCounter is the counter of a node that lends keys: before it takes back counts of a lent
// key, it recalls the other nodes' counts.
type RecallingCounter struct {
	Counter *syncer.Counter
	Tracker *Tracker
}

// Do is syncer.Counter.Do for an operation that takes back.
func (r RecallingCounter) Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	taking := *op
	one := r.beginRecall(&taking)
	if one == nil {
		return r.Counter.Do(ctx, &taking, res)
	}
	failed := one.wait(ctx)
	if ctx.Err() != nil {
		return errRecallLate
	}
	taking.Recalled = failed == nil
	return preferRecallError(r.Counter.Do(ctx, &taking, res), failed)
}

// DoAll is syncer.Counter.DoAll. It makes all recalls at the same time.
func (r RecallingCounter) DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	var recalls map[int]*recall // by position
	for i := range ops {
		if !ops[i].TakesBack() {
			continue
		}
		if one := r.beginRecall(&ops[i]); one != nil {
			if recalls == nil {
				recalls = map[int]*recall{}
			}
			recalls[i] = one
		}
	}
	for i, one := range recalls {
		ops[i].Recalled = one.wait(ctx) == nil
	}
	if len(recalls) > 0 && ctx.Err() != nil {
		for i := range res {
			res[i].Err = errRecallLate
		}
		return
	}
	r.Counter.DoAll(ctx, ops, res)
	for i, one := range recalls {
		res[i].Err = preferRecallError(res[i].Err, one.err)
	}
}

// beginRecall begins a recall, unless this counter has all counts that could be taken back, or does
// not own the key.
func (r RecallingCounter) beginRecall(op *twotier.Op) *recall {
	op.Recalled = false
	lent, decides := r.Counter.IsLent(&op.Checks[0])
	if !lent {
		op.Recalled = decides
		return nil
	}
	return r.Tracker.joinRecall(&op.Checks[0])
}

// preferRecallError replaces the error of an operation that was refused for lack of a recall by the
// error of the recall.
func preferRecallError(err, failed error) error {
	if failed != nil && errors.Is(err, syncer.ErrLent) {
		return failed
	}
	return err
}

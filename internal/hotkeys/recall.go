package hotkeys

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// RecallRequest asks a node to store what it has counted of a key for the key's owner.
type RecallRequest struct{ NS, Key []byte }

// recallTimeout bounds how long it may take until the other nodes have stored what they have
// counted, and this one has read it.
const recallTimeout = time.Second

// recalls are the recalls of one key: those who ask while one is under way share the next.
type recalls struct{ next *recall }

// recall is one recall. err is set when done is closed.
type recall struct {
	done chan struct{}
	err  error
}

// Recall returns once this node, which decides about a key, knows all that others had counted of it
// when it was called. The loans go on. The error wraps syncer.ErrUnavailable.
func (t *Tracker) Recall(ctx context.Context, c *syncer.Check) error {
	r := t.joinRecall(c)
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("%w: what others have counted of this key has not come in time",
			syncer.ErrUnavailable)
	}
}

// joinRecall returns a recall of a key that begins now or later.
func (t *Tracker) joinRecall(c *syncer.Check) *recall {
	name := string(c.AppendName(nil))
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.recalls[name]
	begin := of == nil
	if begin {
		of = new(recalls)
		t.recalls[name] = of
	}
	if of.next == nil {
		of.next = &recall{done: make(chan struct{})}
	}
	r := of.next
	if begin {
		key := syncer.Check{NS: bytes.Clone(c.NS), Key: bytes.Clone(c.Key)}
		go t.runRecalls(name, of, &key)
	}
	return r
}

// runRecalls recalls a key until nobody asks for it any more.
func (t *Tracker) runRecalls(name string, of *recalls, c *syncer.Check) {
	for {
		t.mu.Lock()
		r := of.next
		if of.next = nil; r == nil {
			delete(t.recalls, name)
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), recallTimeout)
		r.err = t.recall(ctx, c)
		cancel()
		close(r.done)
	}
}

// recall is one recall.
func (t *Tracker) recall(ctx context.Context, c *syncer.Check) error {
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
			syncer.ErrUnavailable, m.ID, err)
	})
	if failed != nil {
		return failed
	}
	return t.opt.Counter.CatchUp(ctx, c)
}

// Store answers another node's Recall.
func (t *Tracker) Store(ctx context.Context, q *RecallRequest) error {
	return t.opt.Counter.CatchUp(ctx, &syncer.Check{NS: q.NS, Key: q.Key})
}

// Recalling is the counter of a node that lends keys: before it takes anything back of one, it
// recalls what others have counted.
type Recalling struct {
	*syncer.Counter
	Tracker *Tracker
}

// Do is syncer.Counter.Do.
func (r Recalling) Do(ctx context.Context, op *syncer.Op, res *syncer.Result) error {
	if !r.mustRecall(op) {
		return r.Counter.Do(ctx, op, res)
	}
	if err := r.Tracker.Recall(ctx, &op.Checks[0]); err != nil {
		return err
	}
	recalled := *op
	recalled.Recalled = true
	return r.Counter.Do(ctx, &recalled, res)
}

// DoAll is syncer.Counter.DoAll. What can't be recalled is refused by the counter.
func (r Recalling) DoAll(ctx context.Context, ops []syncer.Op, res []syncer.Result) {
	var asked map[string]bool
	for i := range ops {
		op := &ops[i]
		if !op.TakesBack() {
			continue
		}
		if op.Recalled = false; !r.mustRecall(op) {
			continue
		}
		name := string(op.Checks[0].AppendName(nil))
		recalled, known := asked[name]
		if !known {
			if asked == nil {
				asked = map[string]bool{}
			}
			recalled = r.Tracker.Recall(ctx, &op.Checks[0]) == nil
			asked[name] = recalled
		}
		op.Recalled = recalled
	}
	r.Counter.DoAll(ctx, ops, res)
}

// mustRecall reports whether others may have counted what an operation takes back.
func (r Recalling) mustRecall(op *syncer.Op) bool {
	return op.TakesBack() && !op.AllowNonOwner && r.Lent(&op.Checks[0])
}

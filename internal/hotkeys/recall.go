package hotkeys

import (
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

// recallTimeout bounds how long the other nodes may take to store what they have counted.
const recallTimeout = time.Second

// Recall returns once this node, which decides about a key, knows all that others had counted of it
// when it was called. The loans go on. The error wraps syncer.ErrUnavailable.
func (t *Tracker) Recall(ctx context.Context, c *syncer.Check) error {
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

package hotkeys

import (
	"context"
	"sync/atomic"
	"time"

	"twotier.dev/twotier/internal/elapsed"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// LeaseRequest lets a node count some keys of the requesting node for a time. It renews earlier
// leases.
type LeaseRequest struct {
	By   ring.Member
	Keys []Key
	For  time.Duration
}

// Key is the name of a key.
type Key struct{ NS, Key []byte }

// LeaseResponse has the number of operations on each key that the node has counted since the last
// request.
type LeaseResponse struct {
	Ops []int64
}

// lease is the permission to count another node's key.
type lease struct {
	key    Key
	owner  string // name of the member that granted it
	since  time.Time
	length time.Duration
	ops    atomic.Int64 // since the owner was last told
}

// over reports whether a lease has ended. The monotonic clock does not advance while a machine is
// suspended, so both clocks are checked.
func (l *lease) over(now time.Time) bool { return elapsed.Between(l.since, now) >= l.length }

// askedUntil returns when the requesting node stops waiting for the response, but at most now.
func askedUntil(ctx context.Context, now time.Time) time.Time {
	if by, ok := ctx.Deadline(); ok && by.Before(now) {
		return by
	}
	return now
}

// Accept accepts leases that another node grants or renews, and returns how much was counted under
// them. The owner measures a lease from, at the latest, the moment it stops waiting for the
// response. This node does the same, however late it runs.
func (t *Tracker) Accept(ctx context.Context, q *LeaseRequest) *LeaseResponse {
	since := askedUntil(ctx, time.Now())
	a := &LeaseResponse{Ops: make([]int64, len(q.Keys))}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, k := range q.Keys {
		name := string((&syncer.Check{NS: k.NS, Key: k.Key}).AppendName(nil))
		l := t.leases[name]
		if l == nil && len(t.leases) >= maxLeases || t.opt.Counter.Share(k.NS, k.Key, true) != nil {
			continue
		}
		if l == nil {
			l = &lease{key: k}
			t.leases[name] = l
			t.leased.Add(1)
		}
		a.Ops[i] = l.ops.Swap(0)
		l.owner, l.since, l.length = q.By.Name, since, min(q.For, leaseTime)
	}
	return a
}

// endLeases gives up leases that have ended, and those of keys that this node owns now.
func (t *Tracker) endLeases() {
	t.mu.Lock()
	defer t.mu.Unlock()
	table := t.opt.Table()
	for name, l := range t.leases {
		if l.over(time.Now()) || t.owns(table, &l.key) {
			delete(t.leases, name)
			t.leased.Add(-1)
			t.unshareLocked(name, &l.key)
		}
	}
}

// Leased reports whether this node may count an operation on another node's key. If so it records
// the operation.
func (t *Tracker) Leased(op *syncer.Op, owner *ring.Member) bool {
	if t.leased.Load() == 0 || op.TS != 0 || len(op.Checks) != 1 {
		return false
	}
	var b [384]byte // longer than any name, so that nothing is allocated
	name := op.Checks[0].AppendName(b[:0])
	t.mu.RLock()
	defer t.mu.RUnlock()
	l := t.leases[string(name)]
	if l == nil || l.owner != owner.Name || l.over(time.Now()) {
		return false
	}
	l.ops.Add(1)
	return true
}

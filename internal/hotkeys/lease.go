package hotkeys

import (
	"context"
	"sync/atomic"
	"time"

	"twotier.dev/twotier/internal/elapsed"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// LeaseRequest lets a node count some keys of the asking one beside it, for a time. What it was
// told before is prolonged.
type LeaseRequest struct {
	By   ring.Member
	Keys []Key
	For  time.Duration
}

// Key names one that several nodes count.
type Key struct{ NS, Key []byte }

// LeaseResponse says how many operations on each key the node has counted since it was last asked.
type LeaseResponse struct {
	Ops []int64
}

// lease is the permission to count a key of another node.
type lease struct {
	key    Key
	owner  string // name of the member that granted it
	since  time.Time
	length time.Duration
	ops    atomic.Int64 // since the owner was last told
}

// over reports whether a lease has run out. The monotonic clock of a machine that was suspended
// knows nothing of that, so both clocks are asked.
func (l *lease) over(now time.Time) bool { return elapsed.Between(l.since, now) >= l.length }

// askedUntil is until when the one who asked was waiting for the response, now at the latest.
func askedUntil(ctx context.Context, now time.Time) time.Time {
	if by, ok := ctx.Deadline(); ok && by.Before(now) {
		return by
	}
	return now
}

// Accept takes leases that another node grants, or prolongs them, and responds how much was counted
// under them. The owner counts the time of a lease from when it gave up waiting for the response at
// the latest: so does this node, however long it was held up.
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

// endLeases gives up the leases that have run out, and those of keys that are this node's now.
func (t *Tracker) endLeases() {
	t.mu.Lock()
	defer t.mu.Unlock()
	table := t.opt.Table()
	for name, l := range t.leases {
		if l.over(time.Now()) || t.mine(table, &l.key) {
			delete(t.leases, name)
			t.leased.Add(-1)
			t.unshareLocked(name, &l.key)
		}
	}
}

// Leased reports whether this node may count an operation on a key of another one, and if so notes
// that it does.
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

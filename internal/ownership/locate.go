package ownership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/ring"
)

// ErrInRedis means that the cluster counts in Redis, so no node decides about a partition.
var ErrInRedis = errors.New("the cluster counts in Redis")

// Locate returns the member that currently decides about a partition, nil for this node. If there
// is none, Locate waits for at most [WaitTimeout] or ctx; then the error wraps
// twotier.ErrUnavailable. The error is [ErrInRedis] if the cluster counts in Redis.
func (o *Partitions) Locate(ctx context.Context, p int) (to *ring.Member, err error) {
	inRedis := false
	err = o.await(ctx, func() (known bool) {
		if inRedis = o.opt.InRedis(); inRedis {
			return true
		}
		to, known = o.locateLocked(p)
		return known
	})
	switch {
	case inRedis:
		return nil, ErrInRedis
	case err != nil:
		return nil, fmt.Errorf("%w: partition %d is on its way to this node",
			twotier.ErrUnavailable, p)
	}
	return to, nil
}

// locateLocked returns the member that decides about a partition, nil for this node, and whether it
// is known.
func (o *Partitions) locateLocked(p int) (m *ring.Member, known bool) {
	s := &o.parts[p]
	switch {
	case o.suspended, s.phase == moving:
		return nil, false
	case s.phase == foreign:
		m = o.ownerLocked(p)
		return m, m != nil // if nil, FollowTable will take the partition over
	case s.phase == incoming:
		return s.to, s.to != nil
	}
	return s.to, true
}

// Decider returns the other member that decides about a partition, or nil if this node decides or
// the decider is unknown.
func (o *Partitions) Decider(p int) *ring.Member {
	if o.opt.InRedis() {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	to, known := o.locateLocked(p)
	if !known {
		return nil
	}
	return to
}

// DecidedBy reports whether, in this node's view, m decides about a partition.
func (o *Partitions) DecidedBy(m *ring.Member, p int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	to := o.parts[p].to
	if o.parts[p].phase == foreign {
		to = o.ownerLocked(p)
	}
	return to != nil && to.Name == m.Name
}

// Term reports whether this node currently decides about a partition. Each period of deciding has a
// different term.
func (o *Partitions) Term(p int) (term int64, decides bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	to, known := o.locateLocked(p)
	return o.parts[p].since.UnixNano(), known && to == nil
}

// ownerLocked returns the owner of a partition by the current table, or nil if it is this node.
func (o *Partitions) ownerLocked(p int) *ring.Member {
	t := o.opt.Table()
	if t.OwnedBySelf(p) {
		return nil
	}
	return t.Member(t.Owner(p))
}

// await waits until a condition holds, for at most WaitTimeout or ctx. It checks the condition
// under the lock whenever a phase changes.
func (o *Partitions) await(ctx context.Context, condition func() bool) error {
	timer := time.NewTimer(WaitTimeout)
	defer timer.Stop()
	for {
		o.mu.Lock()
		if condition() {
			o.mu.Unlock()
			return nil
		}
		if o.changed == nil {
			o.changed = make(chan struct{})
		}
		changed := o.changed
		o.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
			return context.DeadlineExceeded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

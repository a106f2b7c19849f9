package ownership

import (
	"context"
	"time"

	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

// This file makes a node that stood still learn its partitions anew. Others may have taken them
// over meanwhile, or counted in the node's place. What the node knew, and all replies that it was
// waiting for, are out of date.

// flushTimeout bounds the flush of the counts that a node has made in place of another one.
const flushTimeout = time.Second

// Relearn ends all decisions of this node, because it stood still. First all other members flush
// the counts that they have made in its place. Then the node takes its partitions over from their
// holders or from the store, as if it had just gained them. It keeps its own pending counts.
// Partitions that the table assigns to other members wait for their claims.
//
// Relearn returns once no operation can be decided by what was known before. If this node knows of
// no other member, it changes nothing.
func (o *Partitions) Relearn() {
	o.mu.Lock()
	t := o.opt.Table()
	if t.Len() < 2 {
		o.mu.Unlock()
		return
	}
	o.forget()
	o.known, o.forget = context.WithCancel(context.Background())
	var parts []int
	for p := range o.parts {
		if o.claimed[p] = o.relearnLocked(p, t); o.claimed[p] {
			parts = append(parts, p)
		}
	}
	o.mu.Unlock()
	o.spawn(context.Background(), func(ctx context.Context) {
		q := &ReturnRequest{By: o.opt.Self()}
		rpc.Broadcast(ctx, o.opt.Table(), askTimeout, func(ctx context.Context, m *ring.Member) {
			_ = o.opt.Peers.Ask(ctx, m, q, nil) // a member that is gone has nothing to flush
		})
		if len(parts) > 0 {
			o.takeOver(ctx, parts)
		}
	})
}

// relearnLocked ends the decisions of this node about a partition. It reports whether the node has
// to take it over.
func (o *Partitions) relearnLocked(p int, t *ring.Table) (wanted bool) {
	s := &o.parts[p]
	switch {
	case o.suspended:
		s.kept = false // another node may have decided about it
		return false
	case s.phase == foreign:
		return false
	case s.phase == incoming:
		s.to = nil
		return true
	case t.OwnedBySelf(p):
		o.opt.Counter.StopOwning(p)
		o.enterLocked(p, incoming)
		return true
	case s.to == nil:
		s.to = t.Member(t.Owner(p))
	}
	o.opt.Counter.RestartHandoff(p)
	o.enterLocked(p, given)
	s.paused = true
	return false
}

// AcceptReturn flushes the counts that this node has made in place of a member that is back. If the
// store does not take them, this node holds the member's partitions until the member claims them.
// Meanwhile it makes no such counts.
func (o *Partitions) AcceptReturn(ctx context.Context, q *ReturnRequest) {
	parts := o.stopStandingIn(&q.By)
	if len(parts) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	err := o.opt.Counter.Flush(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range parts {
		switch {
		case o.suspended || o.parts[p].phase != foreign:
		case err == nil:
			o.opt.Counter.StopOwning(p)
		default:
			o.opt.Counter.StartOwning(p)
			o.enterLocked(p, outgoing)
		}
	}
}

// stopStandingIn makes this node count nothing in place of a member. It returns the partitions of
// the member about which no other node decides, as far as this node knows.
func (o *Partitions) stopStandingIn(m *ring.Member) (parts []int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.suspended {
		return nil
	}
	for p := range o.parts {
		if o.parts[p].phase != foreign {
			continue
		}
		if owner := o.ownerLocked(p); owner != nil && owner.Name == m.Name {
			o.opt.Counter.RestartHandoff(p)
			parts = append(parts, p)
		}
	}
	return parts
}

// spawn runs fn in the background. Its context is done when the node closes or stands still: then
// the replies that fn has received are out of date. fn does not run if parent is done.
func (o *Partitions) spawn(parent context.Context, fn func(ctx context.Context)) {
	o.mu.Lock()
	known := o.known
	over := parent.Err() != nil
	o.mu.Unlock()
	if over {
		return
	}
	o.opt.Go(func(closing context.Context) {
		ctx, cancel := context.WithCancel(known)
		defer cancel()
		defer context.AfterFunc(closing, cancel)()
		fn(ctx)
	})
}

// Suspend ends all decisions of this node. Operations wait until Resume is called or the mode has
// changed. The node remembers the partitions that it decided about. Given partitions stay given:
// only the receiving node knows whether it has everything, and the content may exist nowhere else.
func (o *Partitions) Suspend() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.suspended = true
	o.opt.Counter.SetBorrowingPaused(true)
	for p := range o.parts {
		s := &o.parts[p]
		o.opt.Counter.StopOwning(p) // pending counts have to be flushed
		if s.phase == given {
			s.paused = true
			continue
		}
		s.kept = s.kept || s.phase == own || s.phase == outgoing || s.phase == moving
		o.enterLocked(p, foreign)
	}
}

// DiscardSuspended forgets what Suspend remembered: the mode has changed and everything is in the
// store, so this node no longer takes precedence over others.
func (o *Partitions) DiscardSuspended() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p := range o.parts {
		s := &o.parts[p]
		if s.kept = false; s.phase == given {
			o.enterLocked(p, foreign)
		}
	}
	o.opt.Counter.ForgetLoans()
}

// Resume makes the node decide again. It does so at once for the partitions that Suspend
// remembered, because this node may hold counts that exist nowhere else. For other partitions that
// the table assigns to the node, it waits until no other node decides.
func (o *Partitions) Resume() {
	o.mu.Lock()
	o.suspended = false
	o.opt.Counter.SetBorrowingPaused(false)
	for p := range o.parts {
		switch s := &o.parts[p]; {
		case s.kept:
			s.kept = false
			o.opt.Counter.StartOwning(p)
			o.enterLocked(p, own)
		case s.phase == given:
			o.opt.Counter.RestartHandoff(p)
			s.since = time.Now() // nobody could take it over meanwhile
		}
	}
	o.mu.Unlock()
	o.FollowTable()
}

// WakeWaiters makes all waiters check their condition again.
func (o *Partitions) WakeWaiters() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wakeLocked()
}

func (o *Partitions) isSuspended() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.suspended
}

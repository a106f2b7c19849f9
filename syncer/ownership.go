package syncer

import (
	"context"
	"fmt"
	"time"

	"twotier.dev/twotier"
)

// flushGrace is how long a partition that is about to be handed off may take to flush its pending
// counts. In a healthy system none are left after that, and only synced counts have to be handed
// off.
const flushGrace = 250 * time.Millisecond

// StartOwning makes this counter decide about a partition without a handoff: it loads unknown
// counts from the store. It cancels a handoff that this counter had begun, and so keeps the state
// that was to be handed off.
func (c *Counter) StartOwning(partition int) {
	p := &c.parts[partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cancelHandoff()
	if p.ownership != owned {
		p.ownership = owned
		p.store.BeginGeneration()
	}
	p.settled.wake()
}

// StopOwning ends this counter's decisions about a partition without a handoff. Pending counts are
// still flushed.
func (c *Counter) StopOwning(partition int) {
	p := &c.parts[partition]
	p.mu.Lock()
	p.cancelHandoff()
	p.ownership = notOwned
	p.forgetList()
	p.settled.wake()
	p.mu.Unlock()
	p.flusher.room.RetryAll() // operations that wait for room find another owner
}

// cancelHandoff takes the partition back and resumes flushing. The partition is locked.
func (p *partition) cancelHandoff() {
	if p.handoff.cancel() {
		p.flusher.schedule(p)
	}
}

// BeginHandoff stops deciding about a partition and prepares its handoff. Once it begins,
// operations are refused with ErrNotOwner; when it returns, [Counter.HandoffPage] has everything.
// It first flushes as much as possible in a moment. If the partition can't be made ready before ctx
// is done, because a restoration is in progress or an exchange hangs, the error wraps
// ErrUnavailable, and the caller must continue with StartOwning or StopOwning. It may be called
// again.
func (c *Counter) BeginHandoff(ctx context.Context, partition int) error {
	if c.opt.Store == nil {
		return fmt.Errorf("partition %d: without a store there is no other owner", partition)
	}
	p := &c.parts[partition]
	grace := time.NewTimer(flushGrace)
	defer grace.Stop()
	p.stopDeciding()
	for patient := true; ; {
		news, err := p.trySeal(patient)
		switch {
		case err != nil:
			return err
		case news == nil:
			p.flusher.room.Grant() // its room is free for others
			return nil
		}
		p.flusher.schedule(p)
		select {
		case <-news:
		case <-grace.C:
			patient = false
		case <-ctx.Done():
			return fmt.Errorf("partition %d: %w: it can't be handed over now", partition,
				twotier.ErrUnavailable)
		}
	}
}

// stopDeciding ends the decisions about a partition that is about to be handed off. Operations that
// wait for a load or for room look again, and find another owner.
func (p *partition) stopDeciding() {
	p.mu.Lock()
	if p.ownership == owned {
		p.ownership = handingOff
		// If the store has lost data, the counter that knows the data must restore it.
		if p.store.IsKnown() && p.keys.Len() > 0 {
			p.store.RequestReport()
		}
		p.settled.wake()
	}
	p.mu.Unlock()
	p.flusher.room.RetryAll()
}

// trySeal prepares a partition to be handed off. If that is not possible yet, it returns a channel
// that is closed when the caller should try again.
func (p *partition) trySeal(patient bool) (news <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ownership.isBetween() {
		return nil, fmt.Errorf("partition %d: %w", p.id, twotier.ErrNotOwner)
	}
	switch {
	case p.ownership.isSealed():
	case p.readyToHandOff(patient):
		p.handoff.prepare()
	case p.phase == stopped:
		return nil, twotier.ErrClosed
	default:
		p.dirty.MakeDue()
		return p.settled.nextNews(), nil
	}
	return nil, nil
}

// readyToHandOff reports whether everything is at rest: there is no exchange, reservation or
// restoration and, if patient is true and the store answers, nothing left to verify or flush.
func (g *guarded) readyToHandOff(patient bool) bool {
	if g.outbox.Sent || g.restoration.active() || len(g.reservations) > 0 {
		return false
	}
	return !patient || g.degraded() || g.store.IsConfirmed() && g.keys.PendingBuckets == 0 &&
		g.outbox.IsEmpty() && g.dirty.IsEmpty()
}

// RestartHandoff leaves a partition without an owner until it is handed off with BeginHandoff, from
// the first page, or continues with StartOwning or StopOwning. The partition is flushed meanwhile.
func (c *Counter) RestartHandoff(partition int) {
	p := &c.parts[partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cancelHandoff()
	p.ownership = handingOff
	p.settled.wake()
}

// HandoffPage returns a part of a partition after BeginHandoff: as much as fits in about budget
// bytes, starting at a cursor, 0 for the beginning. next is the cursor of the next page, 0 after
// the last. A cursor always returns the same page until the handoff is finished or canceled; after
// that it is an error.
func (c *Counter) HandoffPage(partition int, cursor uint64,
	budget int) (h *Handoff, next uint64, err error) {
	p := &c.parts[partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ownership.isSealed() {
		return nil, 0, errNoHandoff(partition)
	}
	return p.handoff.page(cursor, budget)
}

func errNoHandoff(partition int) error {
	return fmt.Errorf("partition %d: its handoff has not begun", partition)
}

// ImportHandoff takes a partition over from another counter. Counts that the store had not
// acknowledged are sent to it under their existing name and number; until it has them, they are
// pending here. If this counter has already begun to decide about the partition, or has more recent
// information from the store, it loads its known keys again. If one of the two counters has not
// noticed yet that the store has lost data, that counter's counts are restored.
func (c *Counter) ImportHandoff(h *Handoff) {
	p := &c.parts[h.Partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cancelHandoff()
	p.handoff.accept(h, p.ownership == owned)
	p.ownership = owned
	p.dirty.MakeDue()
	p.settled.wake()
	p.flusher.schedule(p)
}

// FinishHandoff drops a partition after another counter has taken it over: that counter now answers
// for the pending counts. From then on this counter numbers its own rounds under a new name.
func (c *Counter) FinishHandoff(partition int) error {
	p := &c.parts[partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ownership.isSealed() {
		return errNoHandoff(partition)
	}
	p.handoff.finish(c.opt.Writer)
	p.ownership = notOwned
	return nil
}

package syncer

import (
	"context"
	"fmt"
	"time"

	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/leaparray"
)

// ownership says whether this counter decides about the keys of a partition.
type ownership uint8

const (
	// owned: this counter does.
	owned ownership = iota
	// handingOff: nobody does for a moment: this counter did, and is about to hand over what it
	// knows.
	handingOff
	// notOwned: another counter does. This one may still count in its place (Op.AllowNonOwner), and
	// meets it in the store.
	notOwned
)

// Handoff is what one counter tells another that takes over a partition, or a part of it. What is
// in Rounds is counted exactly once, whoever sends it to the store: it goes under the name and
// number that it was given by the counter that cut it.
type Handoff struct {
	Partition int
	// Epoch, Version and Quieted are what the store said last; EpochKnown is false if it has not
	// been asked.
	Epoch, Version, Quieted uint64
	EpochKnown              bool
	// MaybeSent says that a third counter may have sent the rounds to the store, or still do: what
	// the store says of a key is not to be relied on before the last of them is acknowledged.
	MaybeSent bool
	// Unflushed is how long the oldest of what the store has not acknowledged had waited for that,
	// give or take a millisecond; 0 if it has all.
	Unflushed time.Duration
	// Rounds have not been acknowledged by the store. They are in order; Acked of the first of a
	// writer is up to date.
	Rounds []*Round
	// Keys are what is known of keys besides. Not all keys are there: the store has the rest.
	Keys []KeyState
}

// KeyState is a key and all that the store is known to hold of it.
type KeyState struct {
	NS, Key []byte
	Buckets []Bucket
	// Cold says that the store may hold more by now: it is of use if the store has lost what it
	// had.
	Cold bool
}

// handoff is a partition that is ready to be handed off: nothing in it changes until the handoff is
// finished or canceled.
type handoff struct {
	rounds []*Round
	told   bool // somebody may send the rounds
}

// flushGrace is how long a partition that is about to be handed off may take to flush what is
// pending: in a healthy system then nothing is left to be handed off but what is known.
const flushGrace = 250 * time.Millisecond

// refuses reports whether the partition takes no operation, of the owner's or one in its place.
func (p *partition) refuses(foreign bool) bool {
	return p.ownership != owned && (p.ownership == handingOff || !foreign)
}

// StartOwning makes this counter decide about a partition, without anything being handed off: what
// it does not know it reads from the store. A handoff that it had begun is canceled: it keeps what
// it was about to hand off.
func (c *Counter) StartOwning(partition int) {
	p := &c.parts[partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cancelHandoff()
	if p.ownership != owned {
		p.ownership = owned
		p.store.outdate()
	}
	p.wake()
}

// StopOwning ends this counter's decisions about a partition without a handoff. What is pending is
// flushed as ever.
func (c *Counter) StopOwning(partition int) {
	p := &c.parts[partition]
	p.mu.Lock()
	p.cancelHandoff()
	p.ownership = notOwned
	p.wake()
	p.mu.Unlock()
	p.flusher.room.retryAll() // those who wait for room find another partition
}

// cancelHandoff goes back to flushing what was to be handed off.
func (p *partition) cancelHandoff() {
	if p.handoff == nil {
		return
	}
	p.outbox.maybeSent = (p.outbox.maybeSent || p.handoff.told) && len(p.handoff.rounds) > 0
	p.outbox.queue, p.handoff = p.handoff.rounds, nil
	p.dirty.takeBack()
	p.store.outdate() // another may have begun to decide
	p.dirty.due = true
	p.reportOwed()
	p.flusher.schedule(p)
}

// BeginHandoff stops deciding about a partition and makes it ready to be handed off: from when it
// begins, operations are refused with [ErrNotOwner]; when it returns, [Counter.HandoffPage] tells
// all. What can be flushed in a moment is flushed first. If it can't be made ready before ctx is
// done (a restoration is under way, an exchange hangs) an error wrapping [ErrUnavailable] is
// returned, and StartOwning or StopOwning has to say how it goes on. It may be called again.
func (c *Counter) BeginHandoff(ctx context.Context, partition int) error {
	p := &c.parts[partition]
	grace := time.NewTimer(flushGrace)
	defer grace.Stop()
	patient := true
	p.refuse()
	for {
		p.mu.Lock()
		if p.ownership != handingOff {
			p.mu.Unlock()
			return fmt.Errorf("partition %d: %w", partition, ErrNotOwner)
		}
		if p.handoff != nil || p.readyToHandOff(patient) && c.prepareHandoff(p) {
			p.mu.Unlock()
			p.flusher.room.note(0, 0) // what it took of that is there for others
			return nil
		}
		if c.stopped.Load() {
			p.mu.Unlock()
			return ErrClosed
		}
		p.dirty.due = true
		settled := p.wait()
		p.mu.Unlock()
		p.flusher.schedule(p)
		select {
		case <-settled:
		case <-grace.C:
			patient = false
		case <-ctx.Done():
			return fmt.Errorf("partition %d: %w: it can't be handed over now", partition,
				ErrUnavailable)
		}
	}
}

// refuse ends the decisions about a partition that is about to be handed over. Those who wait, for
// a load or for room, find another.
func (p *partition) refuse() {
	p.mu.Lock()
	if p.ownership == owned {
		p.ownership = handingOff
		// What it has lost must be restored by who knows it.
		p.store.mustVerify = p.store.known && p.keys.table.Len() > 0
		p.wake()
	}
	p.mu.Unlock()
	p.flusher.room.retryAll()
}

// readyToHandOff reports whether everything is at rest: no exchange, no reservation, no restoration
// under way, and nothing pending, unless there is no more time for that.
func (p *partition) readyToHandOff(patient bool) bool {
	if p.outbox.sent || p.republish != nil || len(p.reservations) > 0 {
		return false
	}
	return !patient || p.degraded() || !p.store.mustVerify && p.keys.pendingBuckets == 0 &&
		p.outbox.isEmpty() && p.dirty.isEmpty()
}

// prepareHandoff cuts all that is pending into rounds. It reports true.
func (c *Counter) prepareHandoff(p *partition) bool {
	p.unpark()
	// Loads must not bring what is pending in a round that the store may have carried out.
	old := p.outbox.takeAll()
	// What is in those rounds is part of what is pending: it must not be cut into others.
	for _, r := range old {
		c.detach(p, r)
		c.excludePending(p, r)
	}
	rounds := append(old, c.cutAll(p)...)
	for _, r := range old {
		c.includePending(p, r)
	}
	for _, r := range rounds {
		c.detach(p, r)
	}
	p.handoff = &handoff{rounds: rounds}
	p.reportOwed()
	p.handoffs++
	p.dirty.handOff()
	p.loads.refuseAll(ErrNotOwner)
	p.wake()
	return true
}

// cutAll cuts all that is on the dirty list.
func (c *Counter) cutAll(p *partition) (rounds []*Round) {
	p.dirty.due = true
	for !p.dirty.isEmpty() {
		r := &Round{Partition: p.id, Writer: p.outbox.writer}
		c.takeDirty(p, r)
		if !r.seal() {
			c.detach(p, r)
			continue
		}
		p.outbox.number(r)
		r.Acked, r.throughTicket = p.outbox.acked, p.dirty.cutTicket
		rounds = append(rounds, r)
	}
	return rounds
}

// excludePending takes what a round adds out of what is pending, for a moment.
func (c *Counter) excludePending(p *partition, r *Round) {
	c.eachPending(p, r, func(e entry, l *leaparray.Ladder, b *Bucket) {
		p.keys.subtractPending(e, l, b)
	})
}

// includePending counts what a round adds as pending.
func (c *Counter) includePending(p *partition, r *Round) {
	c.eachPending(p, r, func(e entry, l *leaparray.Ladder, b *Bucket) {
		p.keys.addPending(e, l, int(b.Level), b.Index, b.N)
	})
}

// eachPending calls fn for all that a round adds and is not moot, making entries for keys that have
// none.
func (c *Counter) eachPending(p *partition, r *Round,
	fn func(e entry, l *leaparray.Ladder, b *Bucket)) {
	for i := range r.Keys {
		k := &r.Keys[i]
		if k.Forgotten {
			continue
		}
		at := c.entryOf(p, k)
		if at == 0 {
			at = c.makeEntry(p, c.namespaces.hash(k.NS, k.Key), k.NS, k.Key)
		}
		e := p.keys.entry(at)
		l := p.keys.ladder(e)
		for j := range k.Adds {
			fn(e, l, &k.Adds[j])
		}
	}
}

// detach makes a round independent of where its keys lie in memory. Nothing of it is under way.
func (c *Counter) detach(p *partition, r *Round) {
	for i := range r.Keys {
		k := &r.Keys[i]
		if at := c.entryOf(p, k); at != 0 {
			p.keys.entry(at).drop(flagBusy)
		}
		k.ref, k.hash = 0, c.namespaces.hash(k.NS, k.Key)
	}
}

// attach finds the keys of a detached round, and makes entries for those that have none.
func (c *Counter) attach(p *partition, r *Round) {
	for i := range r.Keys {
		k := &r.Keys[i]
		if k.Forgotten {
			continue
		}
		if k.ref = p.keys.find(k.hash, k.NS, k.Key); k.ref == 0 {
			k.ref = c.makeEntry(p, k.hash, k.NS, k.Key)
		}
		p.keys.entry(k.ref).set(flagBusy)
	}
}

// entryOf returns where a round's key is, 0 if it is not in memory.
func (c *Counter) entryOf(p *partition, k *KeyRound) arena.Ref {
	if k.ref != 0 {
		return k.ref
	}
	return p.keys.find(c.namespaces.hash(k.NS, k.Key), k.NS, k.Key)
}

// makeEntry makes a cold entry, whatever the budget says.
func (c *Counter) makeEntry(p *partition, hash uint32, ns, key []byte) arena.Ref {
	sp := c.namespaces.index(ns)
	at := p.keys.insert(hash, ns, key, sp, c.namespaces.all[sp].ladder.Len())
	e := p.keys.entry(at)
	e.setUsed(c.clock.seconds(c.opt.Now()))
	e.set(flagCold)
	return at
}

// FinishHandoff forgets a partition after another counter has taken it over: that one now answers
// for what was pending. From then on this counter numbers its own rounds under another name.
func (c *Counter) FinishHandoff(partition int) error {
	p := &c.parts[partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.handoff == nil {
		return fmt.Errorf("partition %d: its handoff has not begun", partition)
	}
	p.keys.uncount()
	p.keys.table.Drop()
	p.keys.arena.Drop()
	p.dirty.clear()
	p.parked, p.shared = parkedKeys{}, nil
	p.keys.pendingBuckets = 0
	p.outbox.release(c.opt.Writer)
	p.reportOwed()
	p.store.forget()
	p.loads.void()
	p.handoff, p.ownership = nil, notOwned
	p.wake()
	return nil
}

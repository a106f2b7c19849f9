package syncer

import (
	"errors"
	"time"

	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/leaparray"
)

// settle takes the outcome of a round. It reports whether the partition has more to send at once.
func (c *Counter) settle(p *partition, r *Round) (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.wake()
	defer p.askAgain()
	p.outbox.sent = false
	switch {
	case r.Err != nil:
		c.settleFailure(p, r)
		return false
	case r.Republish:
		p.succeed()
		c.settleRepublish(p, r)
		return true
	case r.Lost && p.republish != nil:
		// It was sent before another counter handed over what it knew and had been told of the
		// loss. What came with that is in the store already: it must not be taken for what was
		// known before.
		p.succeed()
		return true
	case r.Lost:
		p.succeed()
		c.totals.losses.Add(1)
		c.logLoss(p.id)
		c.startRepublish(p, versionOf(r))
		if p.republish.isEmpty() {
			p.endRepublish()
		}
		return true
	case r.Used || r.Later && !r.imported && !p.outbox.maybeSent:
		p.succeed()
		c.rename(p, r)
		return true
	}
	p.succeed()
	c.totals.batchesOK.Add(1)
	p.outbox.flight = nil
	first := !p.store.known
	p.learn(r)
	p.advance(r)
	sec := c.clock.seconds(c.opt.Now())
	for i := range r.Keys {
		if i%touchAtOnce == 0 {
			p.touchKeys(r.Keys[i:])
		}
		c.settleKey(p, r, &r.Keys[i], sec)
	}
	more = p.dirty.due && !p.dirty.isEmpty() && (first || c.full(r)) || p.loads.exclusive ||
		len(p.outbox.queue) > 0
	p.parked.settle()
	p.rebuild()
	p.flusher.recycle(r)
	return more
}

// advance notes that the store has a round.
func (p *partition) advance(r *Round) {
	if !r.imported {
		p.dirty.ackedTicket = r.throughTicket
	}
	p.outbox.acknowledge(p.id, r)
	p.reportOwed()
}

func (p *partition) succeed() {
	p.retry.succeed()
	p.loads.lossSeen = false
	p.store.contactAt = time.Now()
	p.reportOwed()
}

// askAgain has the keys loaded that could not be while a round was under way, or that it was to
// bring and did not.
func (p *partition) askAgain() {
	if len(p.loads.waiting) > 0 {
		p.loader.schedule(p)
	}
}

// settleFailure keeps a round that changes something, to be sent again. What somebody waits for is
// loaded beside it: a store that refuses to write can be read.
func (c *Counter) settleFailure(p *partition, r *Round) {
	if errors.Is(r.Err, ErrNotApplied) {
		c.totals.batchesRefused.Add(1)
	} else {
		c.totals.batchesUnknown.Add(1)
		r.outcomeUnknown = true
	}
	p.retry.fail(time.Now())
	p.reportOwed()
	p.loads.putBack(r, false)
	p.loads.allowOverlap()
	if r.Seq != 0 || r.Republish {
		return // it stays the partition's flight
	}
	p.giveBack(r)
	p.outbox.flight = nil
	p.flusher.recycle(r)
}

// giveBack leaves the keys of a round that changes nothing as they were before it was cut. Nothing
// is pending of those that are set aside, or it has left every window since: they wait for another
// try all the same, as what is counted of them meanwhile is on no other list.
func (p *partition) giveBack(r *Round) {
	for i := range r.Keys {
		at := r.Keys[i].ref
		if at == 0 {
			continue
		}
		e := p.keys.entry(at)
		e.drop(flagBusy)
		if e.has(flagParked) {
			p.parked.putBack(at)
		}
	}
}

// learn takes in what the store says after a round: be it that others have changed the partition.
func (p *partition) learn(r *Round) {
	after := p.store.told
	switch {
	case r.Seq == 0:
	case p.outbox.maybeSent:
		// A third counter may have had it carried out before the store was heard last: then it was
		// no change now.
	case r.Quiet:
		after.quieted++
	default:
		after.version++
	}
	p.store.learn(versionOf(r), after, len(p.shared) > 0, time.Now())
}

// rename has what is on its way go under another name: that which it has is in use elsewhere, by a
// copy of this process or by one that was given the same.
func (c *Counter) rename(p *partition, r *Round) {
	old := r.Writer
	name := p.outbox.renumber(r)
	c.opt.Logger.Warn("the store knows this writer from another process: counting under another "+
		"name",
		"partition", p.id, "writer", old, "now", name)
}

// settleKey moves what was flushed of one key from pending to synced and takes over what was
// loaded.
func (c *Counter) settleKey(p *partition, r *Round, k *KeyRound, sec uint32) {
	var w *pendingLoad
	if len(r.loads) > 0 {
		w = r.loads[loadName(k.NS, k.Key)]
	}
	if k.Forgotten {
		w.tell(nil, absence{})
		return
	}
	if k.ref == 0 {
		c.takeLoad(p, k, w, sec)
		return
	}
	e := p.keys.entry(k.ref)
	if e.synced() == 0 && !c.memory.pool.Fits(arena.MinChunkWords) {
		p.evictOne(sec, anySpace) // what the store now holds of this key needs room here, too
	}
	e.drop(flagBusy)
	if k.Err != nil {
		c.park(p, k, e, w)
		return
	}
	l := p.keys.ladder(e)
	alien := CheckCounts(l, k.Loaded)
	load := k.Load && alien == nil
	if p.settleAdds(k, e, l, load) {
		e.set(flagRenew)
		p.enlist(k.ref, e)
	}
	c.totals.flushedBuckets.Add(int64(len(k.Adds)))
	if load {
		p.takeLoaded(e, l, k.Loaded)
		c.totals.loads.Add(1)
		if e.has(flagShared) {
			p.shared.noteRead(e)
		}
	} else if k.Load {
		e.setGen(p.store.generation - 1)
	}
	w.tell(alien, absence{})
	p.keys.tidyPending(e, l, len(k.Adds))
	if e.has(flagParked) {
		e.drop(flagParked)
		if e.hasPending() || e.has(flagReset|flagRenew) {
			p.enlist(k.ref, e)
		}
	}
}

// settleAdds moves what was flushed of a key from pending to synced; if all that the store holds
// was loaded with it, that takes its place. It reports whether the store has lost some of it
// before.
func (p *partition) settleAdds(k *KeyRound, e entry, l *leaparray.Ladder, load bool) (gone bool) {
	for i := range k.Adds {
		b := &k.Adds[i]
		p.keys.subtractPending(e, l, b)
		expected := b.N + l.Sum(p.keys.synced(e), int(b.Level), b.Index, b.Index)
		gone = gone || b.Stored < expected
		if load {
			continue
		}
		held := p.keys.setSynced(e, l, int(b.Level), b.Index, b.Stored)
		if b.Stored != expected || b.Stored != held {
			// Somebody else counts this key, or it was deleted: what else is in the store is not
			// known any more.
			e.setGen(p.store.generation - 1)
		}
	}
	return gone
}

// takeLoaded makes synced exactly what the store holds.
func (p *partition) takeLoaded(e entry, l *leaparray.Ladder, loaded []Bucket) {
	p.keys.replaceSynced(e, l, loaded)
	p.setWarm(e)
}

// park sets a key aside that the store refuses: it stays pending, and out of the way of the others.
func (c *Counter) park(p *partition, k *KeyRound, e entry, w *pendingLoad) {
	c.totals.badKeys.Add(1)
	if k.Reset {
		e.set(flagReset)
	}
	if k.TTL > 0 {
		e.set(flagRenew)
	}
	w.tell(k.Err, absence{})
	if !e.hasPending() && !e.has(flagReset|flagRenew) {
		e.drop(flagParked)
		return
	}
	e.set(flagParked)
	p.parked.add(k.ref, time.Now())
	if c.totals.badKeys.Load() == 1 {
		c.opt.Logger.Warn("the store refuses a key; it is kept in memory and tried again",
			"partition", p.id, "error", k.Err)
	}
}

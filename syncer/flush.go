package syncer

import (
	"time"

	"twotier.dev/twotier/internal/arena"
)

// cutRound returns what the partition has to exchange with the store now, nil if nothing, if it is
// waiting to try again, or if a round is with the store already. The round stays the partition's
// flight until it is settled.
func (c *Counter) cutRound(p *partition) (r *Round, later bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.outbox.sent || p.handoff != nil || p.retry.waiting(now) {
		return nil, false
	}
	r = c.nextRound(p, now)
	if p.outbox.sent = r != nil; p.outbox.sent {
		p.address(r)
	}
	return r, false
}

// address tells a round how far the store had come when it last said so, be it to a load: by it the
// store notices that it has lost data.
func (p *partition) address(r *Round) {
	last := p.store.latest()
	if p.republish != nil {
		last = p.republish.storeVersion
	}
	r.Epoch, r.Version, r.Quieted = last.epoch, last.version, last.quieted
}

func (c *Counter) nextRound(p *partition, now time.Time) *Round {
	switch {
	case p.republish != nil:
		return c.cutRepublish(p)
	case p.outbox.flight != nil:
		p.loads.recallKeys(p.outbox.flight)
		return p.outbox.flight // its outcome is unknown: the same again, under the same number
	case !p.store.known:
		return c.cutFirst(p, now)
	case len(p.outbox.queue) > 0:
		next := p.outbox.next()
		c.attach(p, next)
		p.loads.recallKeys(next)
		return next
	}
	r := p.flusher.newRound(p)
	r.Quiet = true // unless a key turns up that others rely on hearing of
	if now.After(p.parked.until) {
		c.takeParked(p, r)
	}
	c.takeExact(p, r)
	r.most = p.flusher.share(p)
	c.takeLargest(p, r)
	c.takeDirty(p, r)
	verify := c.verifyDue(p, now)
	if len(r.Keys) == 0 && !verify {
		p.flusher.recycle(r)
		p.coverAll()
		return nil
	}
	if r.seal() {
		p.outbox.number(r)
	}
	r.Quiet = r.Quiet && r.Seq != 0
	r.Acked, r.throughTicket = p.outbox.acked, p.dirty.cutTicket
	p.outbox.flight = r
	return r
}

// coverAll notes that the store has all that was on the dirty list so far: what came off it last
// had nothing to tell, and no round is under way.
func (p *partition) coverAll() {
	if p.dirty.ackedTicket == p.dirty.cutTicket {
		return
	}
	p.dirty.ackedTicket = p.dirty.cutTicket
	p.reportOwed()
	p.wake()
}

// cutFirst asks what data the store has before anything is counted: a copy of a round that did not
// say to what data it belongs might arrive after all is lost, and be restored a second time.
func (c *Counter) cutFirst(p *partition, now time.Time) *Round {
	if len(p.outbox.queue) == 0 && !p.loads.exclusive && !(p.dirty.due && !p.dirty.isEmpty()) &&
		!c.verifyDue(p, now) {
		return nil
	}
	r := p.flusher.newRound(p)
	r.throughTicket = p.dirty.ackedTicket
	p.outbox.flight = r
	return r
}

// verifyDue reports whether the store should be asked if it still has everything, and what others
// did.
func (c *Counter) verifyDue(p *partition, now time.Time) bool {
	return p.keys.table.Len() > 0 && now.Sub(p.store.verifiedAt) >= c.opt.VerifyInterval ||
		p.retry.failing() || p.store.mustVerify || p.loads.lossSeen
}

// full reports whether a round is as large as one may be.
func (c *Counter) full(r *Round) bool {
	most := r.most
	if most == 0 {
		most = c.opt.MaxRoundKeys
	}
	return len(r.Keys) >= most || len(r.buckets) >= maxBuckets
}

// takeExact adds the keys that are to be loaded by a round which nothing overlaps.
func (c *Counter) takeExact(p *partition, r *Round) {
	if !p.loads.exclusive {
		return
	}
	p.loads.exclusive = false
	for name, w := range p.loads.waiting {
		switch at := p.keys.find(w.hash, w.ns, w.key); {
		case !w.exclusive:
		case c.full(r):
			p.loads.exclusive = true
			return
		case !w.waited():
			delete(p.loads.waiting, name)
		case at != 0:
			e := p.keys.entry(at)
			p.parked.remove(at)
			c.takeKey(p, r, at, e, true)
		default:
			p.loads.moveTo(r, name)
			r.loadKey(w)
		}
	}
}

// takeDirty adds the keys that have something to flush.
func (c *Counter) takeDirty(p *partition, r *Round) {
	p.dirty.beginCut()
	for taken := 0; p.dirty.due && !c.full(r); taken++ {
		if taken%touchAtOnce == 0 {
			p.touchDirty()
		}
		if p.dirty.isEmpty() {
			p.dirty.due = false
			return
		}
		at, e := p.unlist()
		// Else all that it had was taken already, or the store refuses it.
		if !e.has(flagBusy|flagParked) && e.owes() {
			c.takeKey(p, r, at, e, e.has(flagCold))
		}
	}
}

// takeKey adds all that is pending of one entry, and the deletion of what has expired.
func (c *Counter) takeKey(p *partition, r *Round, at arena.Ref, e entry, load bool) {
	sp := c.namespaces.all[e.space()]
	l := sp.ladder
	ns, key := e.name()
	k := r.addKey(ns, key)
	k.ref, k.Load, k.Ladder = at, load || e.has(flagShared), l
	p.loads.join(r, k)
	r.Quiet = r.Quiet && e.has(flagShared)
	k.Reset = e.has(flagReset)
	e.drop(flagReset)
	e.set(flagBusy)
	pending, synced := p.keys.pending(e), p.keys.synced(e)
	first, fresh, known := len(r.buckets), false, false
	l.Each(pending, func(level int, idx, n int64) bool {
		r.buckets = append(r.buckets, Bucket{Level: uint8(level), Index: idx, N: n})
		if level == l.Len()-1 {
			known = l.Sum(synced, level, idx, idx) != 0
			fresh = fresh || !known
		}
		return true
	})
	if l.Buckets(pending) > len(r.buckets)-first {
		for level := range l.Len() {
			if idx, owed := p.keys.unsentZero(e, l, level); owed {
				r.buckets = append(r.buckets, Bucket{Level: uint8(level), Index: idx})
			}
		}
	}
	k.adds = len(r.buckets)
	k.New = p.warm(e) && e.synced() == 0 && k.adds > first
	// The time to live that was set with the first count in a coarsest bucket lasts for as long as
	// that is needed. A key that the store has lost since then says so when it is flushed, and has
	// it renewed.
	if k.adds > first && (fresh || !known) || e.has(flagRenew) {
		k.TTL = sp.ttl
		e.drop(flagRenew)
	}
	if e.hasPending() && e.synced() != 0 {
		for level := range l.Len() {
			l.Expire(synced, level, l.Head(pending, level), func(idx int64) {
				r.buckets = append(r.buckets, Bucket{Level: uint8(level), Index: idx})
			})
		}
	}
	k.expired = len(r.buckets)
}

// takeParked gives the keys that the store refused another try. Until it has taken them they are
// marked as they were: who waits for the store is told.
func (c *Counter) takeParked(p *partition, r *Round) {
	for len(p.parked.refs) > 0 && !c.full(r) {
		at := p.parked.pop()
		c.takeKey(p, r, at, p.keys.entry(at), false)
	}
}

// unpark puts the keys that the store refused back on the dirty list, those too that it is just
// asked to take.
func (p *partition) unpark() {
	if p.outbox.flight != nil {
		for i := range p.outbox.flight.Keys {
			if at := p.outbox.flight.Keys[i].ref; at != 0 && p.keys.entry(at).has(flagParked) {
				p.parked.putBack(at)
			}
		}
	}
	for _, r := range p.parked.refs {
		e := p.keys.entry(r)
		e.drop(flagParked)
		p.enlist(r, e)
	}
	p.parked.refs = p.parked.refs[:0]
}

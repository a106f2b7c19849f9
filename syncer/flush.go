package syncer

import "time"

// cutRound returns what the partition has to exchange with the store now, nil if nothing, if it is waiting to try again,
// or if a round is with the store already. The round stays the partition's flight until it is settled.
func (c *Counter) cutRound(p *partition) *Round {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.sent || p.sealed != nil || p.failing && now.Before(p.retryAt) {
		return nil
	}
	r := c.nextRound(p, now)
	if p.sent = r != nil; p.sent {
		p.address(r)
	}
	return r
}

// address tells a round what the store said last: by it the store notices that it has lost data.
func (p *partition) address(r *Round) {
	last := p.heard
	if p.republish != nil {
		last = p.republish.heard
	}
	r.Epoch, r.Version, r.Quieted = last.epoch, last.version, last.quieted
}

func (c *Counter) nextRound(p *partition, now time.Time) *Round {
	switch {
	case p.republish != nil:
		return c.cutRepublish(p)
	case p.flight != nil:
		return p.flight // its outcome is unknown: the same again, under the same number
	case !p.met:
		return c.cutMeeting(p, now)
	case len(p.queue) > 0:
		p.flight, p.queue = p.queue[0], p.queue[1:]
		c.attach(p, p.flight)
		return p.flight
	}
	if len(p.parked) > 0 && now.After(p.parkedUntil) {
		p.unpark()
	}
	r := p.lane.newRound(p)
	r.Quiet = true // unless a key turns up that others rely on hearing of
	c.takeWants(p, r)
	c.takeDirty(p, r)
	verify := c.verifyDue(p, now)
	if len(r.Keys) == 0 && !verify {
		p.lane.recycle(r)
		return nil
	}
	if r.seal() {
		p.number(r)
	}
	r.Quiet = r.Quiet && r.Seq != 0
	r.ReadOnly = r.Seq == 0 && !verify && r.onlyUnknown()
	r.Acked, r.through = p.acked, p.cut
	p.flight = r
	return r
}

// number makes a round the next of this writer.
func (p *partition) number(r *Round) {
	p.seq++
	r.Seq, r.Nonce = p.seq, newNonce()
}

// cutMeeting asks what data the store has before anything is counted: a copy of a round that did not say to what data it belongs
// might arrive after all is lost, and be restored a second time. It loads what somebody waits for along the way.
func (c *Counter) cutMeeting(p *partition, now time.Time) *Round {
	r := p.lane.newRound(p)
	if len(p.queue) == 0 {
		c.takeWants(p, r)
	}
	if len(r.Keys)+len(p.queue) == 0 && !(p.flushDue && p.isDirty()) && !c.verifyDue(p, now) {
		p.lane.recycle(r)
		return nil
	}
	r.seal()
	r.through = p.covered
	p.flight = r
	return r
}

// verifyDue reports whether the store should be asked if it still has everything, and what others did.
func (c *Counter) verifyDue(p *partition, now time.Time) bool {
	return p.table.used > 0 && now.Sub(p.verified) >= c.opt.VerifyInterval || p.failing || p.suspect
}

// full reports whether a round is as large as one may be.
func (c *Counter) full(r *Round) bool {
	return len(r.Keys) >= c.opt.MaxRoundKeys || len(r.buckets) >= maxBuckets
}

// takeWants adds the keys that somebody waits for.
func (c *Counter) takeWants(p *partition, r *Round) {
	if len(p.wants) == 0 {
		return
	}
	for name, w := range p.wants {
		if c.full(r) {
			return
		}
		at := p.find(w.hash, w.ns, w.key)
		if at != 0 && !p.met {
			continue // what is pending of it can't be counted yet
		}
		if r.wants == nil {
			r.wants = map[string]*want{}
		}
		r.wants[name] = w
		delete(p.wants, name)
		if at != 0 {
			c.takeKey(p, r, at, p.arena.entry(at), true)
			continue
		}
		k := r.addKey(w.ns, w.key)
		k.hash, k.Load = w.hash, true
		k.adds, k.expired = len(r.buckets), len(r.buckets)
	}
}

// takeDirty adds the keys that have something to flush.
func (c *Counter) takeDirty(p *partition, r *Round) {
	for taken := 0; p.flushDue && !c.full(r); taken++ {
		if taken%touchAtOnce == 0 {
			p.touchDirty()
		}
		if !p.isDirty() {
			p.flushDue = false
			return
		}
		at, e := p.unlist()
		if !e.has(flagBusy | flagParked) { // else it was taken with the wants, all it had, or waits to be unparked
			c.takeKey(p, r, at, e, e.has(flagCold))
		}
	}
}

// takeKey adds all that is pending of one entry, and the deletion of what has expired.
func (c *Counter) takeKey(p *partition, r *Round, at ref, e entry, load bool) {
	sp := c.spaces[e.space()]
	l := sp.ladder
	ns, key := e.name()
	k := r.addKey(ns, key)
	k.ref, k.Load, k.Ladder = at, load || e.has(flagShared), l
	r.Quiet = r.Quiet && e.has(flagShared)
	k.Reset = e.has(flagReset)
	e.drop(flagReset)
	e.set(flagBusy)
	pending, synced := p.pendingOf(e), p.syncedOf(e)
	first, fresh, known := len(r.buckets), false, false
	l.Each(pending, func(level int, idx, n int64) bool {
		r.buckets = append(r.buckets, Bucket{Level: uint8(level), Index: idx, N: n})
		if level == l.Len()-1 {
			known = l.Sum(synced, level, idx, idx) != 0
			fresh = fresh || !known
		}
		return true
	})
	k.adds = len(r.buckets)
	k.New = p.warm(e) && e.synced() == 0 && k.adds > first
	// The time to live that was set with the first count in a coarsest bucket lasts for as long as that is needed. A key that the
	// store has lost since then says so when it is flushed, and has it renewed.
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

// unpark gives the keys that the store refused another try.
func (p *partition) unpark() {
	for _, r := range p.parked {
		e := p.arena.entry(r)
		e.drop(flagParked)
		p.enlist(r, e)
	}
	p.parked = p.parked[:0]
}

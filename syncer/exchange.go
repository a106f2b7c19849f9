package syncer

import "time"

// Who may deal with the store at a moment: nobody while a round that writes is with it, its pause
// after a failure lasts, or all is about to be handed off; a restoration before all else, as what
// is flushed relies on what it restores; and loads beside what is flushed, unless what the store
// says of a key may or may not include what is on its way.

// cut returns what the partition has to exchange with the store now, nil if nothing, if it is
// waiting to try again, or if a round is with the store already. The round stays the partition's
// flight until it is settled.
func (p *partition) cut() (r *Round, later bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.outbox.sent || p.sealed || p.outbox.retry.waiting(now) {
		return nil, false
	}
	if p.restoration.active() {
		r = p.restoration.cut()
	} else {
		r = p.flushing.cut(now)
	}
	if p.outbox.sent = r != nil; p.outbox.sent {
		p.address(r)
	}
	return r, false
}

// dueByClock returns when the partition is to be looked at again, though nobody asks for it, if
// ever: at once if it has something to tell the store or to try again, or when it is time to
// verify.
func (p *partition) dueByClock() (at time.Time, ever bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.pinned() || !p.outbox.isEmpty() || !p.dirty.isEmpty() || len(p.shared) > 0 ||
		len(p.parked.refs) > 0 || p.loads.exclusive || p.flushing.verifyDue(now) {
		return now, true
	}
	return p.store.verifiedAt.Add(p.flushing.opt.VerifyInterval), p.keys.table.Len() > 0
}

// address tells a round how far the store had come when it last said so, be it to a load: by it the
// store notices that it has lost data.
func (g *guarded) address(r *Round) {
	last := g.store.latest()
	if g.restoration.active() {
		last = g.restoration.job.storeVersion
	}
	last.address(r)
}

// settle takes the outcome of a round. It reports whether the partition has more to send at once.
func (p *partition) settle(r *Round) (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.settled.wake()
	p.outbox.sent = false
	if more = p.settleOutcome(r); len(p.loads.waiting) > 0 {
		// Those could not be loaded while the round was under way, or it was to bring them and did
		// not.
		p.loader.schedule(p)
	}
	return more
}

func (g *guarded) settleOutcome(r *Round) (more bool) {
	if r.Err != nil {
		g.flushing.fail(r)
		return false
	}
	g.succeed()
	switch {
	case r.Republish:
		g.restoration.settle(r)
	case r.Lost && g.restoration.active():
		// It was sent before another counter handed over what it knew and had been told of the
		// loss. What came with that is in the store already: it must not be taken for what was
		// known before.
	case r.Lost:
		g.restoration.findLoss(versionOf(r))
	case r.Used || r.Later && !r.imported && !g.outbox.maybeSent:
		g.flushing.rename(r)
	default:
		more = g.flushing.settle(r)
		g.rebuild()
		return more
	}
	return true
}

// succeed notes that the store has answered a round that nothing overlaps.
func (g *guarded) succeed() {
	g.outbox.retry.succeed()
	g.loads.lossSeen = false
	g.store.contactAt = time.Now()
	g.reportOwed()
}

// probe has the partition ask the store for nothing in particular.
func (p *partition) probe() {
	p.mu.Lock()
	p.loads.probe = true
	p.mu.Unlock()
	p.loader.schedule(p)
}

// lookAgain has everybody who waits for a round, or for room, look again.
func (p *partition) lookAgain() {
	p.flusher.room.retryAll()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settled.wake()
}

// cutLoad returns a round that loads what is waited for, nil if nothing can be loaded now. What the
// store says of a key is then exactly what it holds but for what is pending here.
func (p *partition) cutLoad() (r *Round, later bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case len(p.loads.waiting) == 0 && !p.loads.probe, p.loads.underWay != nil:
		return nil, false
	case p.loads.lossSeen || p.pinned() || p.outbox.maybeSent || len(p.outbox.queue) > 0:
		return nil, p.loads.probe // once that is over, who waits is in line again
	case p.loads.retry.waiting(time.Now()):
		return nil, true
	}
	if r = p.loads.cut(); r != nil {
		p.address(r)
	}
	return r, false
}

// settleLoad takes the outcome of a round that only loaded. It reports whether there is more to
// load at once.
func (p *partition) settleLoad(r *Round) (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.settled.wake()
	switch p.loads.settle(r) {
	case loadFailed:
		p.loader.postpone(p)
		return false
	case loadFlushes:
		p.flusher.schedule(p)
	}
	p.dirty.shift.rouse() // what is loaded first has to be verified from now on
	p.rebuild()
	return len(p.loads.waiting) > 0 || p.loads.probe
}

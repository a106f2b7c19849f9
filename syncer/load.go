package syncer

import (
	"slices"
	"time"

	"twotier.dev/twotier/internal/arena"
)

// cutLoad returns a round that loads what is waited for, nil if nothing can be loaded now. What the
// store says of a key is then exactly what it holds but for what is pending here: no key is taken
// that another round may change meanwhile.
func (c *Counter) cutLoad(p *partition) (r *Round, later bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case len(p.loads.waiting) == 0 && !p.loads.probe, p.loads.underWay != nil:
		return nil, false
	case p.loads.lossSeen || p.handoff != nil || p.republish != nil || p.outbox.maybeSent ||
		len(p.outbox.queue) > 0:
		return nil, p.loads.probe // once that is over, who waits is in line again
	case p.loads.retry.waiting(time.Now()):
		return nil, true
	}
	r = p.loader.newRound(p)
	r.Aside = true
	unknown := c.addLoads(p, r)
	if len(r.Keys) == 0 && !p.loads.probe {
		p.loader.recycle(r)
		return nil, false
	}
	// Before the version is known a load has to learn it: what others do later would not be
	// noticed. And to load a key that memory knows, the store must say that it has lost nothing:
	// else what it no longer has would replace what memory still has to tell it.
	r.ReadOnly = p.store.known && unknown && len(r.Keys) > 0
	r.Acked = p.outbox.acked
	p.address(r)
	p.loads.begin(r, p.store.generation)
	return r, false
}

// addLoads adds the keys that somebody waits for. It reports whether memory knows nothing that the
// store holds of any of them.
func (c *Counter) addLoads(p *partition, r *Round) (unknown bool) {
	unknown = true
	for name, w := range p.loads.waiting {
		if c.full(r) {
			break
		}
		if !w.waited() {
			delete(p.loads.waiting, name)
			continue
		}
		if w.exclusive {
			continue
		}
		if at := p.keys.find(w.hash, w.ns, w.key); at != 0 {
			e := p.keys.entry(at)
			if p.changing(at, e) {
				continue
			}
			unknown = unknown && e.synced() == 0
		}
		p.loads.moveTo(r, name)
		r.loadKey(w)
	}
	return unknown
}

// loadKey adds a key that is only loaded.
func (r *Round) loadKey(w *pendingLoad) {
	k := r.addKey(w.ns, w.key)
	k.hash, k.Load = w.hash, true
	k.adds, k.expired = len(r.buckets), len(r.buckets)
}

// changing reports whether the store may be changing what it holds of a key, or is to forget it:
// because the key is part of a round that is on its way or may still be, or is to be reset. A round
// that was refused each time is not on its way until it is sent again.
func (p *partition) changing(at arena.Ref, e entry) bool {
	switch {
	case e.has(flagReset):
		return true
	case !e.has(flagBusy):
		return false
	}
	return p.outbox.sent || p.outbox.flight == nil || p.outbox.flight.outcomeUnknown ||
		p.outbox.flight.resets(at)
}

// resets reports whether a round deletes a key.
func (r *Round) resets(at arena.Ref) bool {
	return slices.ContainsFunc(r.Keys, func(k KeyRound) bool { return k.ref == at && k.Reset })
}

// settleLoad takes the outcome of a round that only loaded. It reports whether there is more to
// load at once.
func (c *Counter) settleLoad(p *partition, r *Round) (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.wake()
	valid := p.loads.end(p.store.generation)
	switch {
	case r.Err != nil:
		p.loads.fail(r, time.Now())
		p.loader.postpone(p)
		return false
	case r.Lost:
		// What was lost is found, and published again, by a round that nothing overlaps.
		p.loads.putBack(r, false)
		p.loads.lossSeen = true
		p.flusher.schedule(p)
	case !valid:
		// Others have changed the partition, or it has changed hands. Were it loaded beside other
		// rounds again, that could go on for ever.
		p.loads.putBack(r, true)
		p.flusher.schedule(p)
	default:
		c.takeLoads(p, r)
	}
	p.loads.retry.succeed()
	p.store.contactAt = time.Now()
	p.rebuild()
	p.loader.recycle(r)
	return len(p.loads.waiting) > 0 || p.loads.probe
}

// takeLoads takes over what a round has loaded.
func (c *Counter) takeLoads(p *partition, r *Round) {
	if !p.store.known {
		p.learn(r)
	}
	p.store.learnLoaded(versionOf(r))
	sec := c.clock.seconds(c.opt.Now())
	for i := range r.Keys {
		k := &r.Keys[i]
		name := loadName(k.NS, k.Key)
		if w := r.loads[name]; w != nil {
			delete(r.loads, name)
			c.takeLoad(p, k, w, sec)
		}
	}
}

// takeLoad takes over what the store holds of one key.
func (c *Counter) takeLoad(p *partition, k *KeyRound, w *pendingLoad, sec uint32) {
	c.totals.loads.Add(1)
	at, alien := p.keys.find(k.hash, k.NS, k.Key), CheckCounts(c.namespaces.ladder(k.NS), k.Loaded)
	switch {
	case k.Err != nil:
		w.tell(k.Err, absence{})
		return
	case alien != nil:
		w.tell(alien, absence{})
		return
	case at == 0 && len(k.Loaded) == 0:
		w.tell(nil, p.absent())
		return
	case at == 0:
		i := c.namespaces.index(k.NS)
		levels := c.namespaces.all[i].ladder.Len()
		if err := c.memory.admitKey(p, i, entryWords(k.NS, k.Key, levels), sec); err != nil {
			w.tell(err, absence{})
			return
		}
		at = p.keys.insert(k.hash, k.NS, k.Key, i, levels)
	}
	e := p.keys.entry(at)
	e.setUsed(sec)
	if e.synced() == 0 && !c.memory.pool.Fits(arena.MinChunkWords) {
		p.evictOne(sec, anySpace) // what the store holds of this key needs room, too
	}
	p.takeLoaded(e, p.keys.ladder(e), k.Loaded)
	if e.has(flagShared) {
		p.shared.noteRead(e)
	}
	w.tell(nil, absence{})
}

package syncer

import "time"

// ImportHandoff takes a partition over from another counter. Counts that the store had not
// acknowledged are sent to it, under the name and number that they have; until it has them, they
// are pending here. If this counter has already begun to decide about the partition, or knows more
// recent news from the store, it reads again what it knows of the keys. If one of the two has not
// noticed yet that the store has lost data, what that one knows is restored.
func (c *Counter) ImportHandoff(h *Handoff) {
	p := &c.parts[h.Partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cancelHandoff()
	p.store.outdate()
	// What is left here from an earlier turn may be part of what the other counter has read from
	// the store.
	p.outbox.maybeSent = p.outbox.maybeSent || h.MaybeSent && len(h.Rounds) > 0 ||
		!p.outbox.isEmpty()
	if h.EpochKnown {
		c.reconcile(p, h)
	}
	for _, r := range h.Rounds {
		c.importRound(p, r, time.Now().Add(-h.Unflushed))
	}
	p.ownership, p.dirty.due = owned, true
	p.wake()
	p.flusher.schedule(p)
}

// reconcile takes over what another counter knows, in the light of what this one was told by the
// store.
func (c *Counter) reconcile(p *partition, h *Handoff) {
	told := storeVersion{h.Epoch, h.Version, h.Quieted}
	switch {
	case p.republish != nil:
		if !p.republish.isOf(h.Epoch) { // else it is in the store that is being restored
			p.republish.after = max(p.republish.after, h.Epoch)
			p.republish.keys = append(p.republish.keys, h.Keys...)
		}
	case !p.store.known || p.store.told.epoch == h.Epoch:
		late := p.store.known && (p.store.told.version > h.Version ||
			p.store.told.quieted > h.Quieted)
		if late || p.ownership == owned { // what the other knows may be out of date
			markCold(h.Keys)
		}
		if !late {
			p.store.setTold(told)
		}
		c.installAll(p, h.Keys)
	case h.Epoch > p.store.told.epoch: // the other has noticed a loss that this one has not
		c.startRepublish(p, told)
		c.installAll(p, c.unknown(p, h.Keys, nil))
	default:
		c.restoreOlder(p, h)
	}
}

// restoreOlder restores what another counter knows that has not noticed a loss. Most of it is not
// in memory here: for as long, it is all that there is to decide by.
func (c *Counter) restoreOlder(p *partition, h *Handoff) {
	rp := &republish{storeVersion: p.store.told, after: h.Epoch}
	fresh := c.unknown(p, h.Keys, &rp.keys)
	c.installAll(p, fresh)
	for i := range fresh {
		k := &fresh[i]
		if at := p.keys.find(c.namespaces.hash(k.NS, k.Key), k.NS, k.Key); at != 0 {
			rp.refs = append(rp.refs, at)
		} else {
			rp.keys = append(rp.keys, *k)
		}
	}
	for _, r := range h.Rounds {
		r.Acked = 0 // of the epoch before
	}
	p.beginRepublish(rp)
}

// unknown returns those of some keys that are not in memory, and appends the others to known, if it
// is there.
func (c *Counter) unknown(p *partition, keys []KeyState, known *[]KeyState) (fresh []KeyState) {
	for i := range keys {
		k := &keys[i]
		switch {
		case p.keys.find(c.namespaces.hash(k.NS, k.Key), k.NS, k.Key) == 0:
			fresh = append(fresh, *k)
		case known != nil:
			*known = append(*known, *k)
		}
	}
	return fresh
}

// markCold marks what is to be read again before it is relied on. A store that loses everything is
// told of it all the same.
func markCold(keys []KeyState) {
	for i := range keys {
		keys[i].Cold = true
	}
}

func (c *Counter) installAll(p *partition, keys []KeyState) {
	for i := range keys {
		c.install(p, &keys[i])
	}
}

// install makes a key known as it was known to another counter.
func (c *Counter) install(p *partition, k *KeyState) {
	hash := c.namespaces.hash(k.NS, k.Key)
	at := p.keys.find(hash, k.NS, k.Key)
	if at != 0 && k.Cold {
		return
	}
	if at == 0 {
		sp := c.namespaces.all[c.namespaces.index(k.NS)]
		if !c.memory.roomFor(p, entryWords(k.NS, k.Key, sp.ladder.Len()),
			c.clock.seconds(c.opt.Now())) {
			return // the store has it
		}
		at = c.makeEntry(p, hash, k.NS, k.Key)
	}
	e := p.keys.entry(at)
	if !e.has(flagReset) {
		p.takeLoaded(e, p.keys.ladder(e), k.Buckets)
	}
	if k.Cold {
		e.set(flagCold)
	}
}

// importRound takes over a round of another counter, unless it has been taken over before. Nothing
// in it was counted before since.
func (c *Counter) importRound(p *partition, r *Round, since time.Time) {
	if !p.outbox.queueImport(r, since) {
		return
	}
	r.Partition = p.id
	for i := range r.Keys {
		k := &r.Keys[i]
		k.ref, k.hash, k.Ladder = 0, c.namespaces.hash(k.NS, k.Key),
			c.namespaces.all[c.namespaces.index(k.NS)].ladder
	}
	c.includePending(p, r)
	p.reportOwed()
}

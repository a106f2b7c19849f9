package syncer

import (
	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/leaparray"
)

// newRound returns an empty round.
func (b *ledger) newRound() *Round {
	return &Round{Partition: b.id, Writer: b.outbox.writer, most: b.mostKeys, mostReads: flushReads}
}

// full reports whether a round has reached its maximum size.
func (r *Round) full() bool {
	return len(r.Keys) >= r.most || len(r.buckets) >= maxBuckets || r.reads >= r.mostReads
}

// detach makes a round independent of the places of its keys in memory. Its keys are no longer
// busy.
func (b *ledger) detach(r *Round) {
	for i := range r.Keys {
		k := &r.Keys[i]
		if at := b.entryOf(k); at != 0 {
			b.keys.entry(at).drop(flagBusy)
		}
		k.ref, k.hash, k.unparked = 0, b.keys.names.hash(k.NS, k.Key), false
		k.compared = false
	}
}

// attach finds the keys of a detached round, and makes entries for the missing ones.
func (b *ledger) attach(r *Round) {
	for i := range r.Keys {
		k := &r.Keys[i]
		if k.Forgotten {
			continue
		}
		if k.ref = b.keys.find(k.hash, k.NS, k.Key); k.ref == 0 {
			k.ref = b.keys.insertCold(k.hash, k.NS, k.Key)
		}
		b.keys.entry(k.ref).set(flagBusy)
	}
}

// entryOf returns the place of a round's key, or 0 if it is not in memory.
func (b *ledger) entryOf(k *KeyRound) arena.Ref {
	if k.ref != 0 {
		return k.ref
	}
	return b.keys.find(b.keys.names.hash(k.NS, k.Key), k.NS, k.Key)
}

// excludePending temporarily subtracts a round's Adds from the pending counts.
func (b *ledger) excludePending(r *Round) {
	b.eachAdd(r, func(e entry, l *leaparray.Ladder, add *Bucket) {
		b.keys.subtractPending(e, l, add)
	})
}

// includePending adds a round's Adds to the pending counts.
func (b *ledger) includePending(r *Round) {
	b.eachAdd(r, func(e entry, l *leaparray.Ladder, add *Bucket) {
		b.keys.addPending(e, l, add.Stretch, add.N)
	})
}

// eachAdd calls fn for all Adds of a round, except of forgotten keys. It makes entries for keys
// that have none.
func (b *ledger) eachAdd(r *Round, fn func(e entry, l *leaparray.Ladder, add *Bucket)) {
	for i := range r.Keys {
		k := &r.Keys[i]
		if k.Forgotten {
			continue
		}
		at := b.entryOf(k)
		if at == 0 {
			at = b.keys.insertCold(b.keys.names.hash(k.NS, k.Key), k.NS, k.Key)
		}
		e := b.keys.entry(at)
		for j := range k.Adds {
			fn(e, b.keys.ladder(e), &k.Adds[j])
		}
	}
}

// keyHashes is a set of hashes of keys.
type keyHashes map[uint32]struct{}

// queuedKeys returns the keys of the queued rounds, or nil if there are none. The Adds of those
// rounds are part of the pending counts. Even if they and later counts add up to zero, something is
// pending.
func (b *ledger) queuedKeys() keyHashes {
	if len(b.outbox.queue) == 0 {
		return nil
	}
	queued := keyHashes{}
	for _, r := range b.outbox.queue {
		for i := range r.Keys {
			queued[r.Keys[i].hash] = struct{}{} // set when it was detached
		}
	}
	return queued
}

// has reports whether the set contains the hash of a round's key.
func (h keyHashes) has(names *namespaces, k *KeyRound) bool {
	if len(h) == 0 {
		return false
	}
	_, has := h[names.hash(k.NS, k.Key)]
	return has
}

// advance records that the store has a round.
func (b *ledger) advance(r *Round) {
	if !r.imported {
		b.dirty.ackedTicket = r.throughTicket
	}
	b.outbox.acknowledge(b.id, r)
	b.reportOwed()
}

// giveBack returns the keys of a round that changes nothing to their state before the cut. Parked
// keys with nothing pending, or whose pending counts have meanwhile left every window, still wait
// for a retry, because later counts of them are on no other list.
func (b *ledger) giveBack(r *Round) {
	for i := range r.Keys {
		at := r.Keys[i].ref
		if at == 0 {
			continue
		}
		e := b.keys.entry(at)
		e.drop(flagBusy)
		if e.has(flagParked) {
			b.parked.putBack(at)
		}
	}
}

// settleAdds moves the flushed counts of a key from pending to synced. With load, the round also
// returned all counts of the store, which replace synced instead.
func (b *ledger) settleAdds(k *KeyRound, e entry, load bool) {
	l := b.keys.ladder(e)
	if k.Existed {
		e.setGen(b.store.generation - 1) // another writer made the key: it is read again
	}
	if !k.Renew && b.keys.began(e, k.Adds) {
		e.set(flagRenew)
	}
	if !load && !b.keys.setSynced(e, k.Adds, k.compared && !k.Reset, true) {
		// Another writer counts this key, or it was deleted, so the rest of the store's counts is
		// no longer known.
		e.setGen(b.store.generation - 1)
	}
	for i := range k.Adds {
		b.keys.subtractPending(e, l, &k.Adds[i])
	}
}

// changing reports whether the store may be changing its counts of a key, or is about to delete it:
// the key is to be reset, or is part of a round that is or may still be in flight. A round that was
// refused each time it was sent is not in flight until it is sent again.
func (b *ledger) changing(hash uint32, e entry) bool {
	switch {
	case b.resetting(hash, e):
		return true
	case !e.has(flagBusy):
		return false
	}
	return b.outbox.sent || b.outbox.flight == nil || b.outbox.flight.outcomeUnknown
}

// resetting reports whether a reset of a key has yet to reach the store. Until then the store's
// counts of the key are meaningless.
func (b *ledger) resetting(hash uint32, e entry) bool {
	return e.has(flagReset) || b.outbox.resets(hash, e)
}

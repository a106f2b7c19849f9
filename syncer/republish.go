package syncer

import (
	"slices"

	"twotier.dev/twotier/internal/arena"
)

// republish is the state of telling a store that has lost data what memory knows. It ends before
// anything else is sent; nothing is evicted or moved meanwhile.
type republish struct {
	storeVersion // of the data which counts are restored into
	// after is the epoch in which they were known.
	after uint64
	refs  []arena.Ref // in memory
	// keys were taken over from another counter; memory knows newer things of them.
	keys  []KeyState
	next  int        // position in both
	round *Round     // under way
	again []KeyState // refused by the store
	turns int        // how many times what was refused has been told again
}

// restoreTurns is how many times more a key is told that the store refuses: there is no telling
// when it will take it, and everything else waits.
const restoreTurns = 3

// tellAgain puts what was refused behind all else, and reports whether there is any.
func (rp *republish) tellAgain() bool {
	if len(rp.again) == 0 || rp.turns == restoreTurns {
		return false
	}
	rp.turns++
	rp.keys, rp.again = append(rp.keys, rp.again...), nil
	return true
}

// isOf reports whether the data that is being restored is that of an epoch. Until the first part
// has drawn an epoch for a store that has gone back in time, it still goes by the one that was lost.
func (rp *republish) isOf(epoch uint64) bool { return rp.epoch == epoch && rp.epoch > rp.after }

func (rp *republish) len() int { return len(rp.refs) + len(rp.keys) }

// startRepublish begins to restore what is in memory into the data that the store has now. What
// could not be sent because of the loss stays the partition's flight, and goes after that.
func (c *Counter) startRepublish(p *partition, now storeVersion) {
	p.beginRepublish(&republish{storeVersion: now, after: p.store.told.epoch, refs: p.known()})
	p.loads.void()
}

// beginRepublish has the partition restore something before all else. Its parts begin the sequence
// of another writer, in which what is cut later goes on: that of a flight which has to keep its
// number is left to it.
func (p *partition) beginRepublish(rp *republish) {
	p.republish = rp
	p.outbox.rename()
}

// known returns the entries of which something is known that the store had.
func (p *partition) known() (refs []arena.Ref) {
	for at, e := range p.keys.all() {
		if e.synced() != 0 {
			refs = append(refs, at)
		}
	}
	return refs
}

// isEmpty reports whether there is nothing to tell, and an epoch in which all hear of the loss: a
// part that says so would be a change of the data, and make up for one that a store has lost which
// goes back in time once more.
func (rp *republish) isEmpty() bool { return rp.len() == 0 && rp.epoch > rp.after }

// cutRepublish returns the next part of what is to be restored. Unlike a flush it says what the
// buckets held, so that sending it twice changes nothing.
func (c *Counter) cutRepublish(p *partition) *Round {
	rp := p.republish
	if rp.round != nil {
		return rp.round
	}
	r := &Round{Partition: p.id, Writer: p.outbox.writer, Acked: p.outbox.acked, Republish: true,
		After: rp.after}
	p.outbox.number(r)
	for ; rp.next < rp.len() && !c.full(r); rp.next++ {
		if i := rp.next - len(rp.refs); i >= 0 {
			k := &rp.keys[i]
			c.addKnown(r, k.NS, k.Key, 0).end(r, k.Buckets)
			continue
		}
		at := rp.refs[rp.next]
		e := p.keys.entry(at)
		ns, key := e.name()
		k := c.addKnown(r, ns, key, at)
		p.keys.ladder(e).EachKept(p.keys.synced(e), func(level int, idx, n int64) bool {
			r.buckets = append(r.buckets, Bucket{Level: uint8(level), Index: idx, N: n})
			return true
		})
		k.end(r, nil)
	}
	r.seal()
	rp.round = r
	return r
}

// addKnown adds a key of which something is known to a part.
func (c *Counter) addKnown(r *Round, ns, key []byte, at arena.Ref) *KeyRound {
	sp := c.namespaces.all[c.namespaces.index(ns)]
	k := r.addKey(ns, key)
	k.ref, k.hash, k.TTL, k.Ladder = at, c.namespaces.hash(ns, key), sp.ttl, sp.ladder
	return k
}

// end appends buckets to those of the round, and lets the key's Adds end there.
func (k *KeyRound) end(r *Round, more []Bucket) {
	r.buckets = append(r.buckets, more...)
	k.adds, k.expired = len(r.buckets), len(r.buckets)
}

// settleRepublish goes on with the next part, or with what could not be sent.
func (c *Counter) settleRepublish(p *partition, r *Round) {
	rp := p.republish
	rp.round = nil
	if r.Lost || r.Used || r.Later {
		// It has lost data once more, another counter has drawn an epoch, or a copy of this process
		// goes by the same name: all is to be told to what it has now.
		if r.Lost {
			rp.after = max(rp.after, rp.epoch)
		}
		rp.storeVersion, rp.refs, rp.next = versionOf(r), p.known(), 0
		p.outbox.rename()
		if rp.isEmpty() {
			p.endRepublish()
		}
		return
	}
	rp.storeVersion, p.outbox.acked = versionOf(r), r.Seq
	c.takeRestored(p, r)
	if rp.next == rp.len() && !rp.tellAgain() {
		p.endRepublish()
	}
}

// takeRestored makes synced what the store holds after a part: only who knows that can restore it
// once more.
func (c *Counter) takeRestored(p *partition, r *Round) {
	for i := range r.Keys {
		k := &r.Keys[i]
		if k.Forgotten {
			continue
		}
		if k.Err != nil {
			p.republish.again = append(p.republish.again, KeyState{
				NS: slices.Clone(k.NS), Key: slices.Clone(k.Key), Buckets: slices.Clone(k.Adds),
			})
			continue
		}
		at := k.ref
		if at == 0 {
			at = p.keys.find(k.hash, k.NS, k.Key)
		}
		if at == 0 {
			continue
		}
		e := p.keys.entry(at)
		if e.has(flagReset) {
			continue // it was forgotten meanwhile: the next round deletes it
		}
		for j := range k.Adds {
			b := &k.Adds[j]
			p.keys.setSynced(e, p.keys.ladder(e), int(b.Level), b.Index, b.Stored)
		}
	}
}

// endRepublish begins a new epoch: nothing is acknowledged in it but the restoration, and others
// may have counted before all was restored, so that what is known has to be read again before it is
// relied on.
func (p *partition) endRepublish() {
	p.store.setTold(p.republish.storeVersion)
	p.republish = nil
	p.store.outdate()
	p.outbox.forgetAcked()
}

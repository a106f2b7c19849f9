package syncer

import (
	"errors"
	"time"
)

// A new key needs no read if it is known that the store has nothing of it. A partition knows that
// once it has read the store's list of its keys, or heard that the store had nothing of it at all,
// for as long as others change nothing: keys that leave memory are added to what was read
// (storedKeys). When others have changed something, only what has come since is read.
//
// This is as good as what is known of a key in memory, and ends with it: with news of others (a new
// generation), with the ownership, with a restoration. And it is not relied on for longer than
// Options.VerifyInterval after the store last said what it has, because a partition that has no key
// in memory does not ask.

const (
	// listAge is how long keys are only added to what was read. After that the list is read from
	// its beginning, without the keys that have left the store since.
	listAge = 24 * time.Hour
	// How long a list is left alone that can't be read, has no room in memory, or is not complete.
	listRetry       = time.Second
	listRoomRetry   = time.Minute
	listUnsupported = time.Hour
)

// listing is how far the store's list of a partition's keys was read. It is guarded by the
// partition's lock.
type listing struct {
	read   KeyList   // only says where to go on
	since  time.Time // when the list was last read from its beginning
	stamp  listStamp // what had been heard of others when the last reading began
	valid  bool      // since then nothing is missing in storedKeys but what others have brought
	wanted bool      // it is in the reader's queue, or being read
	turn   uint64    // counts how often what was read was forgotten
	rest   time.Time // it is left alone until then
}

// listStamp changes whenever others have changed the partition, or may have.
type listStamp struct {
	epoch      uint64
	generation uint32
	quiet      uint32
}

// reading is one call to read on in a list.
type reading struct {
	KeyList
	turn  uint64
	stamp listStamp
	told  storeVersion // what the store is asked to still have
}

// unlisted reports whether the store certainly has nothing of a target's key, which is not in
// memory. If that can't be said, the list is read.
func (t *target) unlisted() bool {
	p := t.p
	if p.keyReader == nil || p.ownership != owned {
		return false
	}
	if !p.listed() {
		p.wantList()
		return false
	}
	if p.keys.stored.set.Has(KeyHash(t.ns, t.check.Key)) {
		return false
	}
	p.keys.unread++
	return true
}

// listed reports whether all keys of the store are in memory or among the stored keys.
func (g *guarded) listed() bool {
	return g.listing.valid && g.listing.stamp == g.store.stamp() && g.keys.stored.kept &&
		g.store.verifiedWithin(g.absenceAge) && !g.outbox.maybeSent && !g.restoration.active()
}

// wantList has the list read, and the store asked what it has if that was too long ago.
func (p *partition) wantList() {
	if !p.store.known || !p.store.verifiedWithin(p.absenceAge) {
		if !p.store.mustVerify {
			p.store.mustVerify = true
			p.flusher.schedule(p)
		}
		return
	}
	now := time.Now()
	if l := p.listing; !l.wanted && !now.Before(l.rest) &&
		now.Sub(p.keys.stored.full) > listRoomRetry {
		l.wanted = true
		p.keyReader.enqueue(p)
	}
}

// beginReading returns where to read on in the list, or nil if it can't be read now.
func (p *partition) beginReading() *reading {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, now := p.listing, time.Now()
	if p.ownership != owned || !p.store.known || p.restoration.active() || p.outbox.maybeSent {
		l.wanted = false
		return nil
	}
	if now.Sub(l.since) > listAge || !p.keys.stored.kept {
		p.forgetList()
		p.keys.stored.begin() // keys that leave memory while the list is read are noted
		l.since = now
	}
	l.wanted = true
	told := p.store.latest()
	r := &reading{KeyList: l.read, turn: l.turn, stamp: p.store.stamp(), told: told}
	r.Partition, r.Told = p.id, Told{told.epoch, told.version, told.quieted, told.lastChange}
	return r
}

// settleReading takes in what was read. It reports whether the list goes on. The stamp is that of
// the first reading of several.
func (p *partition) settleReading(r *reading, stamp listStamp) (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.listing
	l.wanted = false
	switch {
	case r.turn != l.turn: // it was forgotten meanwhile
		return false
	case r.Err != nil:
		p.leaveList(r)
		return false
	case r.Lost: // a round will find that, and restore what was lost
		l.rest = time.Now().Add(listRetry)
		p.store.mustVerify = true
		p.flusher.schedule(p)
		return false
	case p.overtaken(r):
		l.wanted = true
		return true // it is read again
	case r.Begun && l.read.Epoch != 0: // this is no longer the list that was being read
		p.forgetList()
		return false
	case !p.takeHashes(r):
		p.forgetList()
		return false
	}
	p.store.learnLoaded(r.version())
	l.read.Epoch, l.read.Part, l.read.Offset = r.Epoch, r.Part, r.Offset
	l.stamp, l.wanted = stamp, r.More
	l.valid = !r.More && r.Epoch == stamp.epoch
	return r.More
}

// overtaken reports whether the store has told of changes since a list was asked for, and the list
// of later ones. Nothing then says that the store still had the former when it was read. Were the
// list believed, their loss would go unnoticed.
func (p *partition) overtaken(r *reading) bool {
	last := p.store.latest()
	return last != r.told && last.atLeast(r.version()) != last
}

// takeHashes adds what was read to the stored keys. It reports whether there was memory for that.
func (p *partition) takeHashes(r *reading) bool {
	for _, hash := range r.Hashes {
		p.keys.stored.add(hash)
	}
	return p.keys.stored.kept
}

// version returns what the store had when it was read.
func (l *KeyList) version() storeVersion {
	return storeVersion{l.Epoch, l.Version, l.Quieted, l.LastChange}
}

// leaveList leaves a list alone that can't be read. What was read of it stays, unless the store
// says that it is not complete.
func (p *partition) leaveList(r *reading) {
	p.listing.rest = time.Now().Add(listRetry)
	if errors.Is(r.Err, errors.ErrUnsupported) {
		p.forgetList()
		p.listing.rest = time.Now().Add(listUnsupported)
	}
}

// learnFirst takes in that the store had nothing of the partition before a round, so that there is
// nothing to read. A round that was with the store at the same time may have been answered before
// this one. If that answer told of any change, it is too late.
func (b *ledger) learnFirst(r *Round) {
	if !b.lists || !r.First || b.store.latest() != versionOf(r) {
		return
	}
	b.forgetList()
	b.keys.stored.begin()
	b.listing.since, b.listing.stamp, b.listing.valid = time.Now(), b.store.stamp(), true
}

// forgetList forgets what was read of the list.
func (b *ledger) forgetList() {
	l := b.listing
	b.keys.stored.drop()
	*l = listing{turn: l.turn + 1, rest: l.rest}
}

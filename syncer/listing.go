package syncer

import (
	"errors"
	"time"

	"twotier.dev/twotier/syncer/internal/rounds"
	"twotier.dev/twotier/syncer/store"
)

// A new key needs no read if the store is known to have nothing of it. A partition knows that once
// it has read the store's list of its keys, or the store has reported that it had nothing of the
// partition at all, for as long as others change nothing: keys that leave memory are added to the
// keys read ([keys.StoredHashes]). After changes by others, only the new part of the list is read.
//
// This knowledge is as reliable as that of a key in memory, and ends with it: with news of others
// (a new generation), with the ownership, with a restoration. And it expires Options.VerifyInterval
// after the store's last report, because a partition that has no key in memory does not ask for
// one.

const (
	// listAge is how long hashes are only added to the stored keys. After that the list is read
	// from its beginning, without the keys that have left the store since.
	listAge = 24 * time.Hour
	// How long a list rests that can't be read, has no room in memory, or is not complete.
	listRetry       = time.Second
	listRoomRetry   = time.Minute
	listUnsupported = time.Hour
)

// listing is the state of reading the store's list of a partition's keys. It is guarded by the
// partition's lock.
type listing struct {
	read  KeyList          // only the position
	since time.Time        // when the list was last read from its beginning
	stamp rounds.ListStamp // the news of others when the last reading began
	state listState
	turn  uint64    // counts how often the keys read were dropped
	rest  time.Time // the list rests until then
}

// listState is how much of a list is known.
type listState uint8

const (
	// listAbsent: the store has no lists.
	listAbsent listState = iota
	// listUnread: it was not read, or others have added keys since.
	listUnread
	// listWanted: it is in the reader's queue, or being read.
	listWanted
	// listComplete: since the stamp, keys.Stored lacks nothing but keys added by others.
	listComplete
)

// leave changes the state to listUnread if it is a certain one.
func (l *listing) leave(state listState) {
	if l.state == state {
		l.state = listUnread
	}
}

// reading is one call to read on in a list.
type reading struct {
	KeyList
	p     *partition
	turn  uint64
	stamp rounds.ListStamp
}

// hasAllKeys reports whether all keys of the store are in memory or among the stored keys.
func (g *guarded) hasAllKeys() bool {
	return g.listing.state == listComplete && g.listing.stamp == g.store.Stamp() &&
		g.keys.Stored.Kept &&
		g.store.VerifiedWithin(g.absenceAge) && !g.outbox.MaybeSent && !g.restoration.active()
}

// requestList has the list read, or the store verified first if its last report is too old.
func (p *partition) requestList() {
	if !p.store.IsKnown() || !p.store.VerifiedWithin(p.absenceAge) {
		if p.store.RequestReport() {
			p.flusher.schedule(p)
		}
		return
	}
	now := time.Now()
	if l := p.listing; l.state != listWanted && !now.Before(l.rest) &&
		now.Sub(p.keys.Stored.FullAt) > listRoomRetry {
		l.state = listWanted
		p.keyReader.enqueue(p)
	}
}

// beginReading returns the position from which to read on in the list, or nil if it can't be read
// now.
func (p *partition) beginReading() *reading {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, now := p.listing, time.Now()
	if p.ownership != owned || !p.store.IsKnown() || p.restoration.active() || p.outbox.MaybeSent {
		l.leave(listWanted)
		return nil
	}
	if now.Sub(l.since) > listAge || !p.keys.Stored.Kept {
		p.forgetList()
		p.keys.Stored.Begin() // from now on, keys that leave memory are recorded
		l.since = now
	}
	l.state = listWanted
	r := &reading{KeyList: l.read, p: p, turn: l.turn, stamp: p.store.Stamp()}
	r.Partition, r.Told = p.id, p.store.Latest()
	return r
}

// settleReading processes the result of a reading. It reports whether the list goes on. The stamp
// is from the first of several readings.
func (p *partition) settleReading(r *reading, stamp rounds.ListStamp) (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.listing
	l.leave(listWanted)
	switch {
	case r.turn != l.turn: // the keys read were dropped meanwhile
		return false
	case r.Err != nil:
		p.suspendList(r)
		return false
	case r.Lost: // a round will find the loss, and restore the data
		l.rest = time.Now().Add(listRetry)
		p.store.RequestReport()
		p.flusher.schedule(p)
		return false
	case p.overtaken(r):
		l.state = listWanted
		return true // it is read again
	case r.Begun && l.read.Epoch != 0: // the list being read has been replaced
		p.forgetList()
		return false
	case !p.addHashes(r):
		p.forgetList()
		return false
	}
	p.store.ApplyLoadAnswer(r.version())
	l.read.Epoch, l.read.Part, l.read.Offset = r.Epoch, r.Part, r.Offset
	l.stamp = stamp
	switch {
	case r.More:
		l.state = listWanted
	case r.Epoch == stamp.Epoch:
		l.state = listComplete
	}
	return r.More
}

// overtaken reports whether the store has reported changes since a list was requested, and the list
// reports later ones. Then it is unknown whether the store still had the former when the list was
// read. Trusting the list would hide their loss.
func (p *partition) overtaken(r *reading) bool {
	last := p.store.Latest()
	return last != r.Told && last.LaterOf(r.version()) != last
}

// addHashes adds the hashes read to the stored keys. It reports whether there was memory for them.
func (p *partition) addHashes(r *reading) bool {
	for _, hash := range r.Hashes {
		p.keys.Stored.Add(hash)
	}
	return p.keys.Stored.Kept
}

// version returns the store's state at the time of the read.
func (l *KeyList) version() store.Told {
	return store.Told{Epoch: l.Epoch, Version: l.Version, Quieted: l.Quieted,
		LastChange: l.LastChange}
}

// suspendList lets a list rest that can't be read. The keys read so far stay, unless the store
// reports that the list is not complete.
func (p *partition) suspendList(r *reading) {
	p.listing.rest = time.Now().Add(listRetry)
	if errors.Is(r.Err, errors.ErrUnsupported) {
		p.forgetList()
		p.listing.rest = time.Now().Add(listUnsupported)
	}
}

// recordEmptyStore records that the store had nothing of the partition before a round, so there is
// nothing to read. A concurrent round may have been answered before this one. If that answer
// reported a change, the record comes too late.
func (b *ledger) recordEmptyStore(r *rounds.Round) {
	if b.listing.state == listAbsent || !r.First || b.store.Latest() != r.Told() {
		return
	}
	b.forgetList()
	b.keys.Stored.Begin()
	b.listing.since, b.listing.stamp = time.Now(), b.store.Stamp()
	b.listing.state = listComplete
}

// forgetList drops the keys read from the list.
func (b *ledger) forgetList() {
	l := b.listing
	b.keys.Stored.Drop()
	*l = listing{turn: l.turn + 1, rest: l.rest, state: min(l.state, listUnread)}
}

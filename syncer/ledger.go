package syncer

import (
	"sync/atomic"
	"time"

	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/leaparray"
)

// ledger is what a partition knows: its keys with their two numbers, which of them have something
// that the store is to be told, the rounds that it has not acknowledged, and what it has said. It
// knows nobody who reads or writes it. It is guarded by the partition's lock.
type ledger struct {
	keys   keyspace
	dirty  dirtyList
	owed   owedKeys
	outbox outbox
	store  storeState
	shared sharedKeys
	parked parkedKeys

	id       int // of the partition
	mostKeys int // of a round
	// sealed: all that is pending is about to be handed off, in rounds. Nothing changes until that
	// is finished or canceled.
	sealed  bool
	settled broadcast // when a round is settled
}

// owedKeys is how many keys of a partition wait for the store, as far as its flusher knows.
type owedKeys struct {
	room     *room        // of the flusher
	reported atomic.Int64 // changed under the partition's lock only
}

// enlist puts an entry on the dirty list, unless it is there or parked.
func (b *ledger) enlist(r arena.Ref, e entry) {
	if e.has(flagDirty | flagParked) {
		return
	}
	e.set(flagDirty)
	b.dirty.push(r)
	b.reportOwed()
}

// unlist takes the first entry off the dirty list.
func (b *ledger) unlist() (arena.Ref, entry) {
	r := b.dirty.pop()
	e := b.keys.entry(r)
	e.drop(flagDirty)
	return r, e
}

// unpark puts the keys that the store refused back on the dirty list, those too that it is just
// asked to take.
func (b *ledger) unpark() {
	if b.outbox.flight != nil {
		for i := range b.outbox.flight.Keys {
			if at := b.outbox.flight.Keys[i].ref; at != 0 && b.keys.entry(at).has(flagParked) {
				b.parked.putBack(at)
			}
		}
	}
	for _, r := range b.parked.refs {
		e := b.keys.entry(r)
		e.drop(flagParked)
		b.enlist(r, e)
	}
	b.parked.refs = b.parked.refs[:0]
}

// coverAll notes that the store has all that was on the dirty list so far: what came off it last
// had nothing to tell, and no round is under way.
func (b *ledger) coverAll() {
	if b.dirty.ackedTicket == b.dirty.cutTicket {
		return
	}
	b.dirty.ackedTicket = b.dirty.cutTicket
	b.reportOwed()
	b.settled.wake()
}

// keysOwed is how many keys of the partition wait for the store.
func (b *ledger) keysOwed() int64 { return b.dirty.unacked() + b.outbox.importedKeys }

// reportOwed has the flusher know how many keys of the partition wait for the store. While that
// does not take them, or is not told of them, they take no room of others.
func (b *ledger) reportOwed() {
	owed := b.keysOwed()
	if b.outbox.retry.failing() || b.sealed {
		owed = 0
	}
	b.owed.room.owed.Add(owed - b.owed.reported.Swap(owed))
}

// unflushedSince is when the oldest count of the partition was made that the store has not
// acknowledged, or a little before. It is zero if the store has all.
func (b *ledger) unflushedSince() (since time.Time) {
	if since = b.waitingSince(); b.keys.pendingBuckets > 0 {
		since = earlier(since, b.parked.since)
	}
	return since
}

// waitingSince is that of counts which the store has not refused: those that are to go first.
func (b *ledger) waitingSince() time.Time {
	oldest := b.dirty.oldest()
	if b.keys.pendingBuckets == 0 {
		return time.Time{}
	}
	return earlier(oldest, b.outbox.importedSince)
}

// earlier returns the earlier of two times, of which either may be zero: that is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// overdue reports whether the oldest count is so old that it goes before all else. One that the
// store refuses is not: it would have all that is counted beside it go first.
func (b *ledger) overdue(now time.Time) bool {
	since, lag := b.waitingSince(), b.owed.room.lag
	return lag > 0 && !since.IsZero() && now.Sub(since) > lag/overduePart
}

// warm reports whether memory holds all that the store is known to hold of the key.
func (b *ledger) warm(e entry) bool {
	return !e.has(flagCold) && e.gen() == b.store.generation && !b.outbox.maybeSent
}

func (b *ledger) setWarm(e entry) {
	e.drop(flagCold)
	e.setGen(b.store.generation)
}

// everLoaded reports whether the store has told at some time what it holds of a key.
func (b *ledger) everLoaded(e entry) bool { return !e.has(flagCold) && !b.outbox.maybeSent }

// absent says that the store has nothing of a key, as of now.
func (b *ledger) absent() absence {
	return absence{known: true, generation: b.store.generation, drops: b.keys.drops.n}
}

// stillAbsent reports whether that holds for a key that is not in memory.
func (b *ledger) stillAbsent(a absence, hash uint32) bool {
	return a.known && a.generation == b.store.generation &&
		!b.outbox.maybeSent && !b.keys.drops.mayHave(hash, a.drops)
}

// learn takes in what the store says after a round: be it that others have changed the partition.
func (b *ledger) learn(r *Round) {
	after := b.store.told
	switch {
	case r.Seq == 0:
	case b.outbox.maybeSent:
		// A third counter may have had it carried out before the store was heard last: then it was
		// no change now.
	case r.Quiet:
		after.quieted++
	default:
		after.version++
	}
	b.store.learn(versionOf(r), after, len(b.shared) > 0, time.Now())
}

// takeLoaded makes synced exactly what the store holds.
func (b *ledger) takeLoaded(e entry, loaded []Bucket) {
	b.keys.replaceSynced(e, b.keys.ladder(e), loaded)
	b.setWarm(e)
}

// takeRead is takeLoaded of what the store has just said.
func (b *ledger) takeRead(e entry, loaded []Bucket) {
	b.takeLoaded(e, loaded)
	if e.has(flagShared) {
		b.shared.noteRead(e)
	}
}

// known returns the entries of which something is known that the store had.
func (b *ledger) known() (refs []arena.Ref) {
	for at, e := range b.keys.all() {
		if e.synced() != 0 {
			refs = append(refs, at)
		}
	}
	return refs
}

// rebuild moves all entries into a new arena if most of the old one is unused. It must not run
// while a round, or anybody else, refers to entries.
func (b *ledger) rebuild() {
	if b.outbox.flight != nil || !b.keys.arena.Sparse() {
		return
	}
	moved := b.keys.compact()
	b.dirty.move(moved)
	b.parked.move(moved)
}

// empty forgets all keys, and whatever was known of them: another counter answers for them.
func (b *ledger) empty() {
	b.keys.clear()
	b.dirty.clear()
	b.parked, b.shared = parkedKeys{}, nil
	b.store.forget()
}

// erase empties an entry. What is on its way of it, or parked, is of no concern any more.
func (b *ledger) erase(r arena.Ref, e entry, l *leaparray.Ladder) {
	if e.has(flagParked) {
		b.parked.remove(r)
	}
	e.drop(flagBusy | flagRenew | flagParked)
	b.keys.clearPending(e, l)
	b.keys.dropSynced(e)
	b.setWarm(e)
}

// broadcast tells everybody who waits that there is news.
type broadcast struct{ told chan struct{} }

// wait returns a channel that is closed with the next news.
func (b *broadcast) wait() <-chan struct{} {
	if b.told == nil {
		b.told = make(chan struct{})
	}
	return b.told
}

func (b *broadcast) wake() {
	if b.told != nil {
		close(b.told)
		b.told = nil
	}
}

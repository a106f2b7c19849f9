package syncer

import (
	"slices"
	"sync/atomic"
	"time"

	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/loans"
	"twotier.dev/twotier/syncer/internal/room"
	"twotier.dev/twotier/syncer/internal/rounds"
	"twotier.dev/twotier/syncer/store"
)

// ledger is the state of a partition: its keys with their two numbers, the list of dirty keys, the
// rounds that the store has not acknowledged, and the store's last reports. It doesn't know the
// parts that read and write it. It is guarded by the partition's lock.
type ledger struct {
	ownership ownership
	keys      keys.Keyspace
	dirty     rounds.DirtyList
	owed      owedKeys
	outbox    rounds.Outbox
	store     rounds.StoreState
	listing   *listing // separate, like keys.Keyspace.Stored
	unread    int64    // how often a key was not read because the store does not list it
	shared    loans.Keys
	logs      keyLogs
	parked    rounds.ParkedKeys

	id       int       // the partition's
	mostKeys int       // in a round
	settled  broadcast // sent whenever a round is settled
}

// owedKeys is how many keys of a partition wait for the store, as last reported to its flusher.
type owedKeys struct {
	room     *room.Room   // the flusher's
	reported atomic.Int64 // changed under the partition's lock only
}

// markDirty puts an entry on the dirty list, unless it is already there or parked, or there is no
// store.
func (b *ledger) markDirty(r arena.Ref, e keys.Entry) {
	if !b.keys.IsClean(e) {
		return
	}
	e.SetFlags(keys.FlagDirty)
	b.dirty.Push(r)
	b.reportOwed()
}

// popDirty removes the first entry from the dirty list.
func (b *ledger) popDirty() (arena.Ref, keys.Entry) {
	r := b.dirty.Pop()
	e := b.keys.EntryAt(r)
	e.ClearFlags(keys.FlagDirty)
	return r, e
}

// refusalError returns why the store lacks a count of a key although it has acknowledged the
// count's ticket, or nil if it has the count.
func (b *ledger) refusalError(hash uint32, ns, key []byte, ticket uint64) error {
	if b.dirty.HandedOffRefused(hash, ticket) {
		return errHandedOff
	}
	if r := b.keys.Find(hash, ns, key); r != 0 && b.keys.EntryAt(r).HasFlag(keys.FlagParked) {
		return errRefusedKey
	}
	return nil
}

// unpark puts parked keys back on the dirty list, including the ones that the current flight
// retries. It returns their hashes.
func (b *ledger) unpark() rounds.KeyHashes {
	unparked := rounds.KeyHashes{}
	if b.outbox.Flight != nil {
		for i := range b.outbox.Flight.Parts {
			at := b.outbox.Flight.Parts[i].Ref
			if at != 0 && b.keys.EntryAt(at).HasFlag(keys.FlagParked) {
				b.parked.Refs = append(b.parked.Refs, at)
			}
		}
	}
	for _, r := range b.parked.Refs {
		e := b.keys.EntryAt(r)
		e.ClearFlags(keys.FlagParked)
		b.markDirty(r, e)
		unparked[b.keys.Names.Hash(e.Name())] = struct{}{}
	}
	b.parked.Refs = b.parked.Refs[:0]
	return unparked
}

// acknowledgeCut records that the store has everything that has come off the dirty list: the last
// keys had nothing to flush, and no round is in flight.
func (b *ledger) acknowledgeCut() {
	if b.dirty.AckedTicket == b.dirty.CutTicket {
		return
	}
	b.dirty.AckedTicket = b.dirty.CutTicket
	b.reportOwed()
	b.settled.wake()
}

// keysOwed returns how many keys of the partition wait for the store.
func (b *ledger) keysOwed() int64 { return b.dirty.Unacked() + b.outbox.ImportedKeys }

// reportOwed reports to the flusher how many keys of the partition wait for the store. While the
// store doesn't accept them, or the partition is sealed, they take no room from others.
func (b *ledger) reportOwed() {
	owed := b.keysOwed()
	if b.outbox.Retry.Failing() || b.ownership.isSealed() {
		owed = 0
	}
	b.owed.room.AddOwed(owed - b.owed.reported.Swap(owed))
}

// unflushedSince returns when the oldest unacknowledged count was made, or a little earlier. It is
// zero if the store has everything.
func (b *ledger) unflushedSince() (since time.Time) {
	if since = b.waitingSince(); b.keys.PendingBuckets > 0 {
		since = earlier(since, b.parked.Since)
	}
	return since
}

// waitingSince is unflushedSince without the counts that the store refuses. It determines which
// counts are flushed first.
func (b *ledger) waitingSince() time.Time {
	oldest := b.dirty.OldestTime()
	if b.keys.PendingBuckets == 0 {
		return time.Time{}
	}
	return earlier(oldest, b.outbox.ImportedSince)
}

// earlier returns the earlier of two times. A zero time means none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// overdue reports whether the oldest count is so old that it is flushed before everything else.
// Counts that the store refuses don't matter here: they would let all other counts of the partition
// go first.
func (b *ledger) overdue(now time.Time) bool {
	since, lag := b.waitingSince(), b.owed.room.Lag()
	return lag > 0 && !since.IsZero() && now.Sub(since) > lag/overduePart
}

// warm reports whether memory holds all counts of the key that the store is known to have.
func (b *ledger) warm(e keys.Entry) bool {
	return !e.HasFlag(keys.FlagCold) && e.Gen() == b.store.Generation && !b.outbox.MaybeSent
}

func (b *ledger) setWarm(e keys.Entry) {
	e.ClearFlags(keys.FlagCold)
	e.SetGen(b.store.Generation)
}

// everLoaded reports whether the store has ever reported its counts of the key.
func (b *ledger) everLoaded(e keys.Entry) bool {
	return !e.HasFlag(keys.FlagCold) && !b.outbox.MaybeSent
}

// stillAbsent reports whether an absence still holds for a key that is not in memory.
func (b *ledger) stillAbsent(a rounds.Absence, hash uint32) bool {
	return a.Known && a.Generation == b.store.Generation &&
		!b.outbox.MaybeSent && !b.keys.MayHaveDropped(hash, a.Drops)
}

// applyAnswer processes the store's answer to a round, including news of changes by others.
func (b *ledger) applyAnswer(r *rounds.Round) {
	after := b.store.Reported
	switch {
	case r.Seq == 0:
	case b.outbox.MaybeSent:
		// A third counter may have sent this round, and the store may have applied it, before the
		// store's last answer to this counter. In that case it made no change now.
	case r.Quiet:
		after.Quieted++
	default:
		after.Version++
	}
	b.store.ApplyAnswer(r.Told(), after, len(b.shared) > 0, time.Now())
	b.recordEmptyStore(r)
}

// applyLoaded sets synced to exactly the store's counts.
func (b *ledger) applyLoaded(e keys.Entry, loaded []store.Bucket) {
	if !e.HasFlag(keys.FlagBusy) {
		e.SetRewrite(false)
	}
	b.keys.ReplaceSynced(e, cellsOf(loaded))
	b.setWarm(e)
}

// applyRead is applyLoaded for what the store has just returned of a key.
func (b *ledger) applyRead(e keys.Entry, k *store.KeyRound) {
	learnExact(e, k.Loaded)
	b.applyLoaded(e, k.Loaded)
	if k.LoadedLog > 0 || slices.ContainsFunc(k.Loaded, holdsNone) {
		e.SetRewrite(true)
	}
	e.SetNeedsRead(lacks(k.Loaded, b.keys.Ladder(e).CompleteFrom(b.keys.Clock.Now())))
	b.logs.set(b.shared, k)
	if shared := b.sharedKey(e); shared != nil {
		shared.ReadAt = time.Now()
	}
}

// learnExact makes a key exact if others have counted single milliseconds of it, because a limit
// needs them.
func learnExact(e keys.Entry, loaded []store.Bucket) {
	if !e.IsExact() &&
		slices.ContainsFunc(loaded, func(b store.Bucket) bool { return b.Width == 1 }) {
		e.SetExact()
	}
}

// holdsNone reports whether a bucket has no events: it is a mark, which memory may forget, or
// others have taken back more than it had.
func holdsNone(b store.Bucket) bool { return b.N <= 0 }

// lacks reports whether more was taken back from buckets that end after a moment than there is.
func lacks(loaded []store.Bucket, after int64) bool {
	if !slices.ContainsFunc(loaded, func(b store.Bucket) bool { return b.N < 0 }) {
		return false
	}
	return slices.ContainsFunc(leaparray.SettleNegatives(cellsOf(loaded)),
		func(c leaparray.Cell) bool { return c.N < 0 && c.End() > after })
}

// syncedRefs returns the entries with synced counts.
func (b *ledger) syncedRefs() (refs []arena.Ref) {
	for at, e := range b.keys.All() {
		if e.HasSynced() {
			refs = append(refs, at)
		}
	}
	return refs
}

// dropAllKeys drops all keys and all state about them, because another counter now answers for
// them.
func (b *ledger) dropAllKeys() {
	b.keys.Clear()
	b.dirty.Clear()
	b.parked, b.shared, b.logs = rounds.ParkedKeys{}, nil, nil
	b.store.Clear()
	b.forgetList()
}

// erase empties an entry. Counts of it that are in flight or parked no longer matter.
func (b *ledger) erase(r arena.Ref, e keys.Entry) {
	if e.HasFlag(keys.FlagParked) {
		b.parked.Remove(r)
	}
	e.ClearFlags(keys.FlagBusy | keys.FlagRenew | keys.FlagParked)
	b.keys.ClearPending(e)
	b.keys.DropSynced(e)
	b.setWarm(e)
}

// signal makes a goroutine look again, now or when it is done with what it does.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// broadcast wakes all waiting goroutines when there is news.
type broadcast struct{ news chan struct{} }

// nextNews returns a channel that is closed with the next news.
func (b *broadcast) nextNews() <-chan struct{} {
	if b.news == nil {
		b.news = make(chan struct{})
	}
	return b.news
}

func (b *broadcast) wake() {
	if b.news != nil {
		close(b.news)
		b.news = nil
	}
}

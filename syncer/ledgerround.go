package syncer

import (
	"slices"

	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/rounds"
	"twotier.dev/twotier/syncer/store"
)

// newRound returns an empty round.
func (b *ledger) newRound() *rounds.Round {
	r := new(rounds.Round)
	r.Reset(b.id, b.outbox.Writer, b.mostKeys)
	return r
}

// detach makes a round independent of the places of its keys in memory. Its keys are no longer
// busy.
func (b *ledger) detach(r *rounds.Round) {
	for i := range r.Parts {
		k := &r.Parts[i]
		if at := b.refOf(k); at != 0 {
			b.keys.EntryAt(at).ClearFlags(keys.FlagBusy)
		}
		k.Ref, k.Hash, k.Unparked = 0, b.keys.Names.Hash(k.NS, k.Key), false
	}
}

// attach finds the keys of a detached round, and makes entries for the missing ones.
func (b *ledger) attach(r *rounds.Round) {
	for i := range r.Parts {
		k := &r.Parts[i]
		if k.Forgotten {
			continue
		}
		if k.Ref = b.keys.Find(k.Hash, k.NS, k.Key); k.Ref == 0 {
			k.Ref = b.keys.InsertCold(k.Hash, k.NS, k.Key)
		}
		b.keys.EntryAt(k.Ref).SetFlags(keys.FlagBusy)
	}
}

// refOf returns the place of a round's key, or 0 if it is not in memory.
func (b *ledger) refOf(k *rounds.Part) arena.Ref {
	if k.Ref != 0 {
		return k.Ref
	}
	return b.keys.Find(b.keys.Names.Hash(k.NS, k.Key), k.NS, k.Key)
}

// includePending adds a round's Adds to the pending counts.
func (b *ledger) includePending(r *rounds.Round) {
	b.eachAdd(r, b.keys.AddPending)
}

// eachAdd calls fn for all Adds of a round, except of forgotten keys. It makes entries for keys
// that have none.
func (b *ledger) eachAdd(r *rounds.Round, fn func(e keys.Entry, at leaparray.Stretch, n int64)) {
	for i := range r.Parts {
		k := &r.Parts[i]
		if k.Forgotten {
			continue
		}
		at := b.refOf(k)
		if at == 0 {
			at = b.keys.InsertCold(b.keys.Names.Hash(k.NS, k.Key), k.NS, k.Key)
		}
		e := b.keys.EntryAt(at)
		for j := range k.Adds {
			fn(e, k.Adds[j].Stretch, k.Adds[j].N)
		}
	}
}

// queuedKeys returns the keys of the queued rounds, or nil if there are none. The Adds of those
// rounds are part of the pending counts. Even if they and later counts add up to zero, something is
// pending.
func (b *ledger) queuedKeys() rounds.KeyHashes {
	if len(b.outbox.Queue) == 0 {
		return nil
	}
	queued := rounds.KeyHashes{}
	for _, r := range b.outbox.Queue {
		for i := range r.Parts {
			queued[r.Parts[i].Hash] = struct{}{} // set when it was detached
		}
	}
	return queued
}

// isQueued reports whether a part's key is among the queued ones.
func (b *ledger) isQueued(k *rounds.Part, queued rounds.KeyHashes) bool {
	if len(queued) == 0 {
		return false
	}
	_, has := queued[b.keys.Names.Hash(k.NS, k.Key)]
	return has
}

// undoCut returns the keys of a round that changes nothing to their state before the cut. Parked
// keys with nothing pending, or whose pending counts have meanwhile left every window, still wait
// for a retry, because later counts of them are on no other list.
func (b *ledger) undoCut(r *rounds.Round) {
	for i := range r.Parts {
		at := r.Parts[i].Ref
		if at == 0 {
			continue
		}
		e := b.keys.EntryAt(at)
		e.ClearFlags(keys.FlagBusy)
		if e.HasFlag(keys.FlagParked) {
			b.parked.Refs = append(b.parked.Refs, at)
		}
	}
}

// settleAdds moves the flushed counts of a key from pending to synced. With load, the round also
// returned all counts of the store, which replace synced instead.
func (b *ledger) settleAdds(k *rounds.Part, e keys.Entry, load bool) {
	if k.Made {
		e.SetFlags(keys.FlagRenew) // it may not be listed
	}
	if e.IsValues() {
		b.settleValues(k, e, load)
		return
	}
	if len(k.Adds) > 0 && k.Content == nil && !k.New ||
		k.New && slices.ContainsFunc(k.Adds, holdsNone) {
		e.SetRewrite(true)
	}
	for i := range k.Adds {
		at, n := k.Adds[i].Stretch, k.Adds[i].N
		if !load && !b.keys.AddFlushed(e, at, n) {
			e.SetGen(b.store.Generation - 1) // the key was deleted, or others have folded it
		}
		b.keys.SubtractPending(e, at, n)
	}
}

// appendSynced appends everything that another counter, or the store, needs to hold the same counts
// as synced.
func (b *ledger) appendSynced(to []store.Bucket, e keys.Entry) []store.Bucket {
	b.keys.EachSyncedCell(e, func(at leaparray.Stretch, n int64) {
		to = append(to, store.Bucket{Stretch: at, N: n})
	})
	return to
}

// changing reports whether the store may be changing its counts of a key, or is about to delete it:
// the key is to be reset, or is part of a round that is or may still be in flight. A round that was
// refused each time it was sent is not in flight until it is sent again.
func (b *ledger) changing(hash uint32, e keys.Entry) bool {
	switch {
	case b.resetting(hash, e):
		return true
	case !e.HasFlag(keys.FlagBusy):
		return false
	}
	return b.outbox.Sent || b.outbox.Flight == nil || b.outbox.Flight.OutcomeUnknown
}

// resetting reports whether a reset of a key has yet to reach the store. Until then the store's
// counts of the key are meaningless.
func (b *ledger) resetting(hash uint32, e keys.Entry) bool {
	return e.HasFlag(keys.FlagReset) || b.outbox.ResetsKey(hash, e)
}

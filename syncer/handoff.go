package syncer

import (
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer/internal/rounds"
	"twotier.dev/twotier/syncer/store"
)

// Handoff is the state of a partition, or a page of it, that one counter passes to the next owner.
// Every count in Rounds is counted exactly once, no matter which counter sends it to the store,
// because a round keeps the writer and sequence it was cut with.
type Handoff struct {
	Partition int
	// Epoch, Version, Quieted and LastChange are the store's last report. Epoch is 0 if there is
	// none.
	Epoch, Version, Quieted uint64
	LastChange              string
	// MaybeSent means that a third counter may have sent the rounds to the store, or may still do
	// so. The store's report of a key must not be relied on before the last of them is
	// acknowledged.
	MaybeSent bool
	// UnflushedAge is the age of the oldest count that the store has not acknowledged, plus or
	// minus a millisecond; 0 if it has everything.
	UnflushedAge time.Duration
	// Rounds have not been acknowledged by the store. They are in order; Acked of the first round
	// of each writer is up to date.
	Rounds []*store.Round
	// Keys holds other counts known of keys. It does not list all keys: the store has the rest.
	Keys []KeyState
	// Loans are the loans that the first counter has made.
	Loans []twotier.Loan
}

// KeyState is a key and all its synced counts.
type KeyState struct {
	NS, Key []byte
	Buckets []store.Bucket
	// Cold means that the store may hold more by now. The state is only useful if the store has
	// lost its data.
	Cold bool
}

// handoff hands a partition from one counter to another. Between prepare and finish or cancel the
// ledger is sealed: nothing in it changes. The methods are called with the partition locked.
type handoff struct {
	*ledger
	flushing    *flushing
	loads       *loading
	restoration *restoration
	budget      budget

	rounds []*rounds.Round // everything pending, once the ledger is sealed
	times  uint64          // how often the ledger was sealed
}

// prepare cuts everything pending into rounds and seals the ledger.
func (h *handoff) prepare() {
	refused := h.unpark()
	// From here on, loads must not return counts of rounds that the store may have applied.
	old := h.outbox.RemoveAll()
	// The counts in those rounds are still pending. They must not be cut into new rounds as well.
	for _, r := range old {
		h.detach(r)
		h.excludePending(r)
	}
	rounds := append(old, h.cutAll()...)
	for _, r := range old {
		h.includePending(r)
	}
	for _, r := range rounds {
		h.detach(r)
	}
	h.rounds, h.ownership = rounds, sealed
	h.times++
	h.reportOwed()
	h.dirty.HandOff(refused)
	h.loads.RefuseAll(twotier.ErrNotOwner)
	h.settled.wake()
}

// cutAll cuts all keys on the dirty list.
func (h *handoff) cutAll() (rounds []*rounds.Round) {
	h.dirty.MakeDue()
	for !h.dirty.IsEmpty() {
		r := h.newRound()
		h.flushing.addDirty(r)
		if !h.flushing.seal(r) {
			h.detach(r)
			continue
		}
		rounds = append(rounds, r)
	}
	return rounds
}

// cancel takes the partition back and resumes flushing. It reports whether the ledger was sealed.
func (h *handoff) cancel() bool {
	if !h.ownership.isSealed() {
		return false
	}
	h.outbox.MaybeSent = (h.outbox.MaybeSent || h.ownership == offered) && len(h.rounds) > 0
	h.outbox.Queue, h.rounds, h.ownership = h.rounds, nil, handingOff
	h.dirty.CancelHandOff()
	h.store.BeginGeneration() // another counter may have begun to decide
	h.dirty.MakeDue()
	h.reportOwed()
	return true
}

// finish drops everything that was handed off. From now on rounds are numbered under a new name,
// derived from the counter's.
func (h *handoff) finish(counter string) {
	h.dropAllKeys()
	h.outbox.ResetAfterHandoff(counter)
	h.rounds, h.ownership = nil, notOwned
	h.reportOwed()
	h.loads.VoidAll()
	h.settled.wake()
}

// includesKey reports whether a handoff includes counts of a key, so that others may still send
// them.
func (h *handoff) includesKey(hash uint32, ns, key []byte) bool {
	return h.ownership.isSealed() && rounds.AnyHasKey(h.rounds, hash, ns, key)
}

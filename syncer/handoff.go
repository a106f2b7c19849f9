package syncer

import (
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/keys"
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
		h.eachAdd(r, h.keys.SubtractPending)
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

// accept takes over the counts and the unsent rounds of another counter. owned means that this
// counter has already begun to decide.
func (h *handoff) accept(o *Handoff, owned bool) {
	h.store.BeginGeneration()
	// Rounds from an earlier turn as owner may be left here, and the other counter may have read
	// some of their counts from the store.
	h.outbox.MaybeSent = h.outbox.MaybeSent || o.MaybeSent && len(o.Rounds) > 0 ||
		!h.outbox.IsEmpty()
	if o.Epoch != 0 {
		h.reconcile(o, owned)
	}
	h.cutResets(o.Rounds)
	for _, r := range o.Rounds {
		h.acceptRound(r, time.Now().Add(-o.UnflushedAge))
	}
	if h.outbox.IsEmpty() { // all of them had been taken over before, and the store has them
		h.outbox.MaybeSent = false
	}
	h.adoptLoans(o.Loans)
}

// reconcile takes over another counter's counts, given the store's last report to this one.
func (h *handoff) reconcile(o *Handoff, owned bool) {
	reported := store.Told{Epoch: o.Epoch, Version: o.Version, Quieted: o.Quieted,
		LastChange: o.LastChange}
	switch {
	case h.restoration.active():
		h.restoration.alsoRestore(o.Epoch, o.Keys)
	case !h.store.IsKnown() || h.store.Reported.Epoch == o.Epoch:
		late := h.store.IsKnown() && (h.store.Reported.Version > o.Version ||
			h.store.Reported.Quieted > o.Quieted)
		if late || owned { // the other counter's counts may be out of date
			for i := range o.Keys {
				o.Keys[i].Cold = true
			}
		}
		if !late {
			h.store.SetReported(reported)
		}
		h.installAll(o.Keys)
	case o.Epoch > h.store.Reported.Epoch: // only the other counter has found a loss
		h.restoration.restoreAll(reported)
		h.installAll(h.unknownKeys(o.Keys, nil))
	default:
		h.restoreOlder(o)
	}
}

// restoreOlder restores the counts of another counter that has not noticed a loss. Most of these
// keys are not in memory here. Until they are restored, decisions have only those counts to rely
// on.
func (h *handoff) restoreOlder(o *Handoff) {
	// Counts that were only loaded may be lost as well, before the restoration has begun.
	job := &republish{Told: h.store.Latest(), after: o.Epoch}
	fresh := h.unknownKeys(o.Keys, &job.keys)
	h.installAll(fresh)
	for i := range fresh {
		k := &fresh[i]
		if at := h.keys.Find(h.keys.Names.Hash(k.NS, k.Key), k.NS, k.Key); at != 0 {
			job.refs = append(job.refs, at)
		} else {
			job.keys = append(job.keys, *k)
		}
	}
	for _, r := range o.Rounds {
		r.Acked = 0 // the sequence belongs to the previous epoch
	}
	h.restoration.begin(job)
}

// unknownKeys returns the keys that are not in memory. It appends the others to known unless that
// is nil.
func (h *handoff) unknownKeys(keys []KeyState, known *[]KeyState) (fresh []KeyState) {
	for i := range keys {
		k := &keys[i]
		switch {
		case h.keys.Find(h.keys.Names.Hash(k.NS, k.Key), k.NS, k.Key) == 0:
			fresh = append(fresh, *k)
		case known != nil:
			*known = append(*known, *k)
		}
	}
	return fresh
}

func (h *handoff) installAll(keys []KeyState) {
	for i := range keys {
		h.install(&keys[i])
	}
}

// install takes over another counter's counts of a key.
func (h *handoff) install(k *KeyState) {
	hash := h.keys.Names.Hash(k.NS, k.Key)
	at := h.keys.Find(hash, k.NS, k.Key)
	if at != 0 && k.Cold {
		// Both have to read the key again. If the store loses it before that, the larger counts are
		// what it would hold once each had restored its own.
		if e := h.keys.EntryAt(at); !h.resetting(hash, e) {
			h.keys.MergeSynced(e, cellsOf(k.Buckets))
		}
		return
	}
	if at == 0 {
		words := keys.Words(k.NS, k.Key)
		if !h.budget.ensureRoom(words, h.keys.Clock.Second()) {
			return // the key can be loaded from the store
		}
		at = h.keys.InsertCold(hash, k.NS, k.Key)
	}
	e := h.keys.EntryAt(at)
	if !h.resetting(hash, e) {
		learnExact(e, k.Buckets)
		h.applyLoaded(e, k.Buckets)
		h.logs.take(h.shared, k.NS, k.Key)
		e.SetRewrite(!e.IsValues())
		e.SetNeedsRead(!e.IsValues())
	}
	if k.Cold {
		e.SetFlags(keys.FlagCold)
	}
}

// cellsOf returns the cells of some buckets.
func cellsOf(buckets []store.Bucket) []leaparray.Cell {
	cells := make([]leaparray.Cell, len(buckets))
	for i := range buckets {
		cells[i] = leaparray.Cell{Stretch: buckets[i].Stretch, N: buckets[i].N}
	}
	return cells
}

// cutResets queues unsent resets before the rounds that are about to be taken over, if those count
// the same keys. A later reset would delete the other counter's newer counts, which are
// acknowledged, while the reset is not.
func (h *handoff) cutResets(before []*store.Round) {
	resets := h.newRound()
	for _, r := range before {
		for i := range r.Keys {
			k := &r.Keys[i]
			at := h.keys.Find(h.keys.Names.Hash(k.NS, k.Key), k.NS, k.Key)
			if at == 0 {
				continue
			}
			e := h.keys.EntryAt(at)
			if e.HasFlag(keys.FlagReset) && !e.HasFlag(keys.FlagBusy|keys.FlagParked) {
				if resets.Full() {
					h.queueResets(resets)
					resets = h.newRound()
				}
				h.flushing.addEntry(resets, at, e, false)
			}
		}
	}
	h.queueResets(resets)
}

// queueResets queues a round of cutResets, unless it is empty.
func (h *handoff) queueResets(resets *rounds.Round) {
	if h.flushing.seal(resets) {
		h.loads.PutBack(resets, false)
		h.detach(resets)
		h.outbox.Queue = append(h.outbox.Queue, resets)
	}
}

// acceptRound takes over a round of another counter, unless it was taken over before. None of its
// counts is older than since.
func (h *handoff) acceptRound(from *store.Round, since time.Time) {
	r := rounds.Adopt(from)
	if !h.outbox.QueueImport(r, since) {
		return
	}
	r.Partition, r.Most = h.id, h.mostKeys
	for i := range r.Parts {
		k := &r.Parts[i]
		k.Ref, k.Hash = 0, h.keys.Names.Hash(k.NS, k.Key)
		k.TTL = h.keys.Names.Of(k.NS).TTL
	}
	h.includePending(r)
	h.reportOwed()
}

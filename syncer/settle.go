package syncer

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/rounds"
	"twotier.dev/twotier/syncer/store"
)

// settle processes the answer to a round that the store has applied. It reports whether there is
// more to send at once.
func (f *flushing) settle(r *rounds.Round) (more bool) {
	f.totals.batchesOK.Add(1)
	f.outbox.Flight = nil
	void := r.Generation != f.store.Generation
	if void {
		f.voidLoads(r)
		r.First = false
	}
	f.applyAnswer(r)
	if !r.Imported {
		f.dirty.AckedTicket = r.ThroughTicket
	}
	f.outbox.Acknowledge(f.id, r)
	f.reportOwed()
	sec, queued := f.keys.Clock.Second(), f.queuedKeys()
	for i := range r.Parts {
		if i%keys.PrefetchAtOnce == 0 {
			f.prefetchKeys(r.Parts[i:])
		}
		f.settleKey(r, &r.Parts[i], queued, sec)
		if at := r.Parts[i].Ref; void && at != 0 {
			// What was learned of the key since may include the round, or not.
			f.keys.EntryAt(at).SetGen(f.store.Generation - 1)
		}
	}
	more = f.dirty.IsDue() || f.loads.Exclusive || len(f.outbox.Queue) > 0
	if len(f.parked.Refs) == 0 {
		f.parked.Since = time.Time{}
	}
	f.scratch.recycle(f.ledger, r)
	return more
}

// voidLoads has the loads of a round repeated: the partition has changed hands since it was sent,
// so the store may have answered before the last counts of the previous owner reached it.
func (f *flushing) voidLoads(r *rounds.Round) {
	f.loads.PutBack(r, true)
	for i := range r.Parts {
		r.Parts[i].Load, r.Parts[i].Read, r.Parts[i].Loaded = false, false, nil
	}
}

// fail keeps a round that changes something, to be sent again. Its pending loads are put back, to
// be loaded next to it, because a store that refuses to write can still be read.
func (f *flushing) fail(r *rounds.Round) {
	if errors.Is(r.Err, store.ErrNotApplied) {
		f.totals.batchesRefused.Add(1)
	} else {
		f.totals.batchesUnknown.Add(1)
		r.OutcomeUnknown = true
	}
	f.outbox.Retry.Fail(time.Now())
	f.reportOwed()
	f.loads.PutBack(r, false)
	f.loads.AllowOverlap()
	if r.Seq != 0 || r.Republish {
		return // it stays the partition's flight
	}
	f.undoCut(r)
	f.outbox.GiveUp()
	f.scratch.recycle(f.ledger, r)
}

// changeWriter sends unacknowledged rounds under another name, because theirs is in use elsewhere,
// by a copy of this process or by one with the same configured name.
func (f *flushing) changeWriter(r *rounds.Round) {
	old := r.Writer
	name := f.outbox.Renumber(r)
	f.opt.Logger.Warn("the store knows this writer from another process: counting under another "+
		"name", "partition", f.id, "writer", old, "now", name)
}

// settleKey moves the flushed counts of one key from pending to synced, and applies its loaded
// counts. queued has the keys of the rounds in the queue.
func (f *flushing) settleKey(r *rounds.Round, k *rounds.Part, queued rounds.KeyHashes, sec uint32) {
	w := r.LoadOf(k)
	switch {
	case k.Forgotten:
		w.Finish(nil, rounds.Absence{})
		return
	case k.Ref == 0:
		if k.Load {
			f.loads.applyLoad(k, w, sec)
		}
		return
	}
	e := f.keys.EntryAt(k.Ref)
	e.ClearFlags(keys.FlagBusy)
	if k.Err != nil {
		f.park(k, e, w)
		return
	}
	if k.Reset {
		f.keys.DropSynced(e) // counts learned since the cut are from before the reset
		if r.OutcomeUnknown {
			// They may be from after it if the store had applied the round before this answer: when
			// it was sent first, or when another counter sent its copy. Then the key is read again.
			e.SetGen(f.store.Generation - 1)
		}
	}
	if !e.HasSynced() {
		f.budget.makeRoomForSynced(sec)
	}
	alien := CheckCounts(k.Loaded)
	load := k.Read && alien == nil
	f.settleAdds(k, e, load)
	f.totals.flushedBuckets.Add(int64(len(k.Adds)))
	if load {
		f.applyRead(e, k.KeyRound)
		if shared := f.sharedKey(e); shared != nil {
			shared.EndRead()
		}
		f.totals.loads.Add(1)
	} else if k.Read {
		e.SetGen(f.store.Generation - 1)
	}
	w.Finish(alien, rounds.Absence{})
	if !f.isQueued(k, queued) {
		f.keys.ReleaseEmptyPending(e)
		if e.HasPending() || e.HasFlag(keys.FlagRenew) {
			// Counts that have folded since the round was cut add up to zero, or the store has lost
			// the key.
			f.markDirty(k.Ref, e)
		}
	}
	if e.HasFlag(keys.FlagParked) {
		f.unpark(k, e)
	}
}

// unpark ends the setting aside of a key that the store accepts again.
func (f *flushing) unpark(k *rounds.Part, e keys.Entry) {
	if !k.Unparked {
		f.parked.Remove(k.Ref)
	}
	e.ClearFlags(keys.FlagParked)
	if e.HasPending() || e.HasFlag(keys.FlagReset|keys.FlagRenew) {
		f.markDirty(k.Ref, e)
	}
}

// park sets a refused key aside. It stays pending, out of the way of other keys.
func (f *flushing) park(k *rounds.Part, e keys.Entry, w *rounds.PendingLoad) {
	f.totals.badKeys.Add(1)
	e.SetRewrite(true)
	e.SetGen(f.store.Generation - 1) // a foreign value is there
	if k.Reset {
		e.SetFlags(keys.FlagReset)
	}
	if k.Renew {
		e.SetFlags(keys.FlagRenew)
	}
	w.Finish(k.Err, rounds.Absence{})
	if e.HasFlag(keys.FlagParked) && !k.Unparked {
		return // it waits among the parked keys already
	}
	if !e.HasPending() && !e.HasFlag(keys.FlagReset|keys.FlagRenew) {
		e.ClearFlags(keys.FlagParked)
		return
	}
	e.SetFlags(keys.FlagParked)
	f.parked.Add(k.Ref, time.Now())
	if f.totals.badKeys.Load() == 1 {
		f.opt.Logger.Warn("the store refuses a key; keeping it in memory and retrying",
			"partition", f.id, "error", k.Err)
	}
}

const (
	// enoughSilent is how many partitions must fail, with none getting through meanwhile, before
	// the store counts as down. A single failing partition is no evidence about the others: its
	// data may be broken, or its shard gone.
	enoughSilent = 8
	// silentParts is how many exchange timeouts a store must be silent for, if it does not refuse
	// connections, before it counts as down. A shorter pause only makes it late.
	silentParts = 2
)

// health determines whether the store can be reached at all.
type health struct {
	parts  []partition // all of the counter's
	enough int
	// timeout is the timeout of an exchange.
	timeout time.Duration
	down    atomic.Bool
	reached atomic.Uint64 // exchanges that reached the store

	mu     sync.Mutex
	silent map[int]bool // partitions that have failed since the last success
	since  time.Time    // when the first exchange with one of these failures began
	probed time.Time    // when other partitions were last asked because of those
}

// reachedStore reports whether a round shows that the store can be reached, regardless of the
// answer.
func reachedStore(r *rounds.Round) bool {
	return r.Err == nil || errors.Is(r.Err, store.ErrLate) || errors.Is(r.Err, store.ErrRefused)
}

// record records the outcomes of an exchange that began at a time. fell reports that the store has
// just been found to be down. ask reports that the caller should probe a few other partitions to
// find out.
func (h *health) record(sent []*rounds.Round, began time.Time) (fell, ask bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.ContainsFunc(sent, reachedStore) {
		clear(h.silent)
		h.down.Store(false)
		h.reached.Add(1)
		return false, false
	}
	before := len(h.silent)
	if before == 0 {
		h.since = began
	}
	for _, r := range sent {
		h.silent[r.Partition] = true
	}
	now := time.Now()
	timedOut := now.Sub(began) >= h.timeout
	if len(h.silent) >= h.enough && (!timedOut || now.Sub(h.since) >= silentParts*h.timeout) {
		return !h.down.Swap(true), false
	}
	if ask = len(h.silent) > before && now.Sub(h.probed) > rounds.FirstBackoff; ask {
		h.probed = now
	}
	return false, ask
}

// recordOutcomes records the outcomes of an exchange that began at a time, and wakes or probes
// partitions if necessary.
func (h *health) recordOutcomes(sent []*rounds.Round, began time.Time) {
	fell, ask := h.record(sent, began)
	if fell {
		for i := range h.parts {
			h.parts[i].wakeWaiters() // nobody should go on waiting for a store that is down
		}
	}
	if ask {
		first := rand.IntN(len(h.parts))
		for i := range h.enough { // all different, or too few could fail
			h.parts[(first+i)%len(h.parts)].probe()
		}
	}
}

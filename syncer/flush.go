package syncer

import (
	"cmp"
	"slices"
	"time"

	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/rounds"
	"twotier.dev/twotier/syncer/store"
)

// flushing sends a partition's counts to the store: it cuts the keys on the dirty list into rounds,
// and applies the store's answers. At most one writing round is in flight. It includes pending
// loads of its keys, and the loaded counts are exactly the store's.
//
// A round that the store has not answered stays the partition's flight, and is sent again
// unchanged. The methods are called with the partition locked, while nothing else writes to the
// store.
type flushing struct {
	*ledger
	loads   *loading
	scratch *scratch
	budget  budget
	opt     *Options
	totals  *totals
}

// cut returns the next round, or nil if there is nothing to send.
func (f *flushing) cut(now time.Time) *rounds.Round {
	r := f.nextRound(now)
	if r != nil {
		r.Generation = f.store.Generation
	}
	return r
}

func (f *flushing) nextRound(now time.Time) *rounds.Round {
	switch {
	case f.outbox.Flight != nil:
		f.readAgain(f.outbox.Flight)
		f.loads.VoidKeys(f.outbox.Flight)
		return f.outbox.Flight // its outcome is unknown: send it again under the same number
	case !f.store.IsKnown():
		return f.cutFirst(now)
	case len(f.outbox.Queue) > 0:
		next := f.outbox.Next()
		f.attach(next)
		f.readAgain(next)
		f.loads.VoidKeys(next)
		return next
	}
	return f.cutDirty(now)
}

// cutFirst cuts a round that asks for the epoch of the store's data, before anything is counted.
// Otherwise a delayed copy of a round that named no epoch might arrive after the store has lost
// everything, be applied, and its counts be restored a second time.
func (f *flushing) cutFirst(now time.Time) *rounds.Round {
	if len(f.outbox.Queue) == 0 && !f.loads.Exclusive && !f.dirty.IsDue() && !f.verifyDue(now) {
		return nil
	}
	r := f.scratch.round(f.ledger)
	r.ThroughTicket = f.dirty.AckedTicket
	f.outbox.Flight = r
	return r
}

// cutDirty cuts a round of the due keys: dirty ones, and ones that only a round without overlap may
// load. A round without keys only verifies.
func (f *flushing) cutDirty(now time.Time) *rounds.Round {
	r := f.scratch.round(f.ledger)
	r.Quiet = true // until there is a key whose changes others must notice
	if now.After(f.parked.Until) {
		f.addParked(r)
	}
	f.addExclusiveLoads(r)
	r.Most = f.owed.room.RoundKeys(f.keysOwed(), f.opt.MaxRoundKeys)
	f.addLargest(r, now)
	f.addDirty(r)
	if len(r.Keys) == 0 && !f.verifyDue(now) {
		f.scratch.recycle(f.ledger, r)
		f.acknowledgeCut()
		return nil
	}
	f.seal(r)
	r.Quiet = r.Quiet && r.Seq != 0
	f.outbox.Flight = r
	return r
}

// seal completes a round, and numbers it if it changes anything. It reports whether it does.
func (f *flushing) seal(r *rounds.Round) (changes bool) {
	if changes = r.Seal(); changes {
		f.outbox.AssignSequence(r)
	}
	r.Acked, r.ThroughTicket = f.outbox.Acked, f.dirty.CutTicket
	if r.Now == 0 {
		r.Now = f.keys.Clock.Now()
	}
	return changes
}

// sequenceRenewal is how often a partition without keys in memory shows the store that its sequence
// is still in use. A store may forget a sequence that has been unused for days, which would look
// like a loss.
const sequenceRenewal = time.Hour

// verifyDue reports whether it is time to verify that the store still has everything, and to learn
// of changes by others.
func (f *flushing) verifyDue(now time.Time) bool {
	return f.verifyWithin(0, now) || f.outbox.Retry.Failing() || f.store.IsDue()
}

// verifyWithin reports whether the clock will make the partition verify the store within d.
func (f *flushing) verifyWithin(d time.Duration, now time.Time) bool {
	at, ever := f.nextVerification()
	return ever && !now.Add(d).Before(at)
}

// nextVerification returns when the clock should make the partition verify the store, if ever. A
// partition without keys only does so to keep its sequence in the store.
func (f *flushing) nextVerification() (at time.Time, ever bool) {
	if f.keys.Len() > 0 {
		return f.store.VerifiedAt.Add(f.opt.VerifyInterval), true
	}
	return f.store.VerifiedAt.Add(max(f.opt.VerifyInterval, sequenceRenewal)), f.outbox.Acked > 0
}

// addExclusiveLoads adds the keys that only a round without overlap may load.
func (f *flushing) addExclusiveLoads(r *rounds.Round) {
	if !f.loads.Exclusive {
		return
	}
	f.loads.Exclusive = false
	for name, w := range f.loads.Waiting {
		switch at := f.keys.Find(w.Hash, w.NS, w.Key); {
		case !w.Exclusive:
		case r.Full():
			f.loads.Exclusive = true
			return
		case !w.HasWaiters():
			delete(f.loads.Waiting, name)
		case at != 0:
			f.parked.Remove(at)
			f.addEntry(r, at, f.keys.EntryAt(at), true).Unparked = true
		default:
			f.loads.MoveTo(r, name)
			f.addLoad(r, w)
		}
	}
}

// addDirty adds the dirty keys that are due.
func (f *flushing) addDirty(r *rounds.Round) {
	f.dirty.BeginCut()
	for taken := 0; f.dirty.IsDue() && !r.Full(); taken++ {
		if taken%keys.PrefetchAtOnce == 0 {
			next := f.dirty.Listed()
			f.keys.Prefetch(next[:min(len(next), keys.PrefetchAtOnce)])
		}
		at, e := f.popDirty()
		// Otherwise all its counts were taken already, or the store refuses it.
		if !e.HasFlag(keys.FlagBusy|keys.FlagParked) && e.NeedsRound() {
			f.addEntry(r, at, e, e.HasFlag(keys.FlagCold))
		}
	}
}

// addParked retries the keys that the store refused. They keep FlagParked until the store accepts
// them, so that callers that wait for the store get an error.
func (f *flushing) addParked(r *rounds.Round) {
	for len(f.parked.Refs) > 0 && !r.Full() {
		at := f.parked.Pop()
		f.addEntry(r, at, f.keys.EntryAt(at), false).Unparked = true
	}
}

// addEntry adds all pending counts of one entry. If an operation waits for the key to be loaded,
// the round loads it.
func (f *flushing) addEntry(r *rounds.Round, at arena.Ref, e keys.Entry, load bool) *rounds.Part {
	ns, key := e.Name()
	k := r.AddKey(ns, key)
	k.Ref, k.Load = at, load || e.HasFlag(keys.FlagShared)
	k.TTL = f.keys.Namespace(e).TTL
	f.loads.Join(r, k)
	if shared := f.sharedKey(e); shared != nil {
		shared.BeginRead()
	}
	k.Reset = e.HasFlag(keys.FlagReset)
	e.ClearFlags(keys.FlagReset)
	e.SetFlags(keys.FlagBusy)
	if r.Now == 0 {
		r.Now = f.keys.Clock.Now()
	}
	if e.NeedsRewrite() && f.keys.ShouldFold(e) {
		f.keys.Fold(e, f.keys.Ladder(e), r.Now)
	}
	first := len(r.Buckets)
	fresh, listed := f.cutPending(r, e)
	k.AppendBuckets(r, nil)
	counted := len(r.Buckets) > first
	k.New = counted && !e.HasSynced() && f.knows(e) && !k.Load && !k.Reset
	// The time to live is set with the first count in a bucket of the coarsest level, and lasts for
	// as long as that bucket is needed.
	if counted && fresh || e.HasFlag(keys.FlagRenew) {
		k.Renew, k.Listed = true, listed && !e.HasFlag(keys.FlagRenew)
		e.ClearFlags(keys.FlagRenew)
	}
	// A key whose content is unknown is read with its counts, or nobody might restore them.
	known := f.addContent(r, k, e, r.Buckets[first:]) || k.New
	k.Load = k.Load || counted && !known && !e.IsValues()
	if k.Load {
		r.Reads += rounds.ReadsOf(f.keys.Ladder(e))
	}
	// Who knows how much of the log of a shared key it has read has to notice a rewrite or a reset.
	r.Quiet = r.Quiet && e.HasFlag(keys.FlagShared) && !k.Rewrite && !k.Reset
	return k
}

// cutPending adds an entry's pending buckets to a round. fresh reports that the store has no counts
// in the bucket of the coarsest level that contains one of them, or the mark. listed reports that
// this is no reason to list the key again.
func (b *ledger) cutPending(r *rounds.Round, e keys.Entry) (fresh, listed bool) {
	if e.IsValues() {
		return b.cutValues(r, e)
	}
	l, pending, synced := b.keys.Ladder(e), b.keys.PendingOf(e), b.keys.SyncedOf(e)
	listed = true
	look := func(at leaparray.Stretch) {
		if !storeHasGroup(l, synced, at, 1) {
			fresh, listed = true, listed && storeHasGroup(l, synced, at, bucketsPerListGroup(l))
		}
	}
	l.EachCell(pending, func(at leaparray.Stretch, n int64) bool {
		r.Buckets = append(r.Buckets, store.Bucket{Stretch: at, N: n})
		look(at)
		return true
	})
	if b.keys.OwesMark(e, l) {
		mark, _ := l.Marked(pending)
		r.Buckets = append(r.Buckets, store.Bucket{Stretch: mark})
		look(mark)
	}
	return fresh, fresh && listed
}

// storeHasGroup reports whether the store is known to hold counts of a key in the group of this
// many buckets of the coarsest level that contains the start of at.
func storeHasGroup(l *leaparray.Ladder, synced leaparray.Counter, at leaparray.Stretch,
	group int64) bool {
	width := l.CoarsestWidth() * group
	from := at.Start - at.Start%width
	v := leaparray.View{Ladder: l, A: synced}
	return v.UpperBound(from, from+width-1) != 0
}

// prefetchKeys prefetches the entries and counters of the next keys of a round.
func (b *ledger) prefetchKeys(parts []rounds.Part) {
	refs := make([]arena.Ref, 0, keys.PrefetchAtOnce)
	for i := range parts[:min(len(parts), keys.PrefetchAtOnce)] {
		refs = append(refs, parts[i].Ref)
	}
	b.keys.Prefetch(refs)
}

// mostWeighed is how many keys compete for the half of a round with the largest counts. The next
// round weighs other keys.
//
// When more keys wait than the store accepts in a moment, a round holds only a part of a
// partition's dirty keys. Half of it goes to the keys that have waited longest, so that none waits
// for ever. The other half goes to the keys with the largest pending counts, so that a crash loses
// as little as possible. At the pace last measured, every partition in the queue has a turn within
// a second, see [room.Room.RoundKeys].
const mostWeighed = 4096

// weighed is an entry and the size of its pending counts.
type weighed struct {
	at arena.Ref
	n  int64
}

// addLargest adds the keys with the largest pending counts, out of turn, if not all keys fit into
// the round. They stay on the dirty list. When their turn comes, they only flush newer counts, if
// any.
func (f *flushing) addLargest(r *rounds.Round, now time.Time) {
	some, pause := f.dirty.Listed(), 2*f.opt.FlushInterval
	if !f.dirty.IsDue() || len(some) <= r.Most || f.overdue(now) ||
		now.Sub(f.dirty.WeighedAt) < pause {
		return
	}
	f.dirty.WeighedAt = now
	if f.dirty.Weighed >= len(some) {
		f.dirty.Weighed = 0
	}
	some = some[f.dirty.Weighed:min(len(some), f.dirty.Weighed+mostWeighed)]
	f.dirty.Weighed += len(some)
	found := f.scratch.weighed[:0]
	for part := range slices.Chunk(some, keys.PrefetchAtOnce) {
		f.keys.Prefetch(part)
		for _, at := range part {
			if n := f.keys.PendingWeight(f.keys.EntryAt(at)); n > 1 {
				found = append(found, weighed{at, n})
			}
		}
	}
	slices.SortFunc(found, func(a, b weighed) int { return cmp.Compare(b.n, a.n) })
	f.scratch.weighed = found
	for _, w := range found[:min(len(found), r.Most/2)] {
		if r.Full() {
			return
		}
		e := f.keys.EntryAt(w.at)
		f.addEntry(r, w.at, e, e.HasFlag(keys.FlagCold))
	}
}

package syncer

import (
	"time"

	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/syncer/internal/keys"
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
func (f *flushing) cut(now time.Time) *round {
	r := f.next(now)
	if r != nil {
		r.generation = f.store.generation
	}
	return r
}

func (f *flushing) next(now time.Time) *round {
	switch {
	case f.outbox.flight != nil:
		f.loads.recallKeys(f.outbox.flight)
		return f.outbox.flight // its outcome is unknown: send it again under the same number
	case !f.store.known:
		return f.cutFirst(now)
	case len(f.outbox.queue) > 0:
		next := f.outbox.next()
		f.attach(next)
		f.loads.recallKeys(next)
		return next
	}
	return f.cutDirty(now)
}

// cutFirst cuts a round that asks for the epoch of the store's data, before anything is counted.
// Otherwise a delayed copy of a round that named no epoch might arrive after the store has lost
// everything, be applied, and its counts be restored a second time.
func (f *flushing) cutFirst(now time.Time) *round {
	if len(f.outbox.queue) == 0 && !f.loads.exclusive && !(f.dirty.due && !f.dirty.isEmpty()) &&
		!f.verifyDue(now) {
		return nil
	}
	r := f.scratch.round(f.ledger)
	r.throughTicket = f.dirty.ackedTicket
	f.outbox.flight = r
	return r
}

// cutDirty cuts a round of the due keys: dirty ones, and ones that only a round without overlap may
// load. A round without keys only verifies.
func (f *flushing) cutDirty(now time.Time) *round {
	r := f.scratch.round(f.ledger)
	r.Quiet = true // until there is a key whose changes others must notice
	if now.After(f.parked.until) {
		f.takeParked(r)
	}
	f.takeExact(r)
	r.most = f.owed.room.Share(f.keysOwed(), f.opt.MaxRoundKeys)
	f.takeLargest(r, now)
	f.takeDirty(r)
	if len(r.Keys) == 0 && !f.verifyDue(now) {
		f.scratch.recycle(f.ledger, r)
		f.coverAll()
		return nil
	}
	f.seal(r)
	r.Quiet = r.Quiet && r.Seq != 0
	f.outbox.flight = r
	return r
}

// seal completes a round, and numbers it if it changes anything. It reports whether it does.
func (f *flushing) seal(r *round) (changes bool) {
	if changes = r.seal(); changes {
		f.outbox.number(r)
	}
	r.Acked, r.throughTicket = f.outbox.acked, f.dirty.cutTicket
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
	return f.verifyWithin(0, now) || f.outbox.retry.failing() || f.store.mustVerify ||
		f.store.verifyNow || f.loads.lossSeen
}

// verifyWithin reports whether the clock will make the partition verify the store within d.
func (f *flushing) verifyWithin(d time.Duration, now time.Time) bool {
	at, ever := f.verifyAt()
	return ever && !now.Add(d).Before(at)
}

// verifyAt returns when the clock should make the partition verify the store, if ever. A partition
// without keys only does so to keep its sequence in the store.
func (f *flushing) verifyAt() (at time.Time, ever bool) {
	if f.keys.Len() > 0 {
		return f.store.verifiedAt.Add(f.opt.VerifyInterval), true
	}
	return f.store.verifiedAt.Add(max(f.opt.VerifyInterval, sequenceRenewal)), f.outbox.acked > 0
}

// takeExact adds the keys that only a round without overlap may load.
func (f *flushing) takeExact(r *round) {
	if !f.loads.exclusive {
		return
	}
	f.loads.exclusive = false
	for name, w := range f.loads.waiting {
		switch at := f.keys.Find(w.hash, w.ns, w.key); {
		case !w.exclusive:
		case r.full():
			f.loads.exclusive = true
			return
		case !w.waited():
			delete(f.loads.waiting, name)
		case at != 0:
			f.parked.remove(at)
			f.take(r, at, f.keys.Entry(at), true)
			r.parts[len(r.parts)-1].unparked = true
		default:
			f.loads.moveTo(r, name)
			f.loadKey(r, w)
		}
	}
}

// takeDirty adds the dirty keys.
func (f *flushing) takeDirty(r *round) {
	f.dirty.beginCut()
	for taken := 0; f.dirty.due && !r.full(); taken++ {
		if taken%keys.TouchAtOnce == 0 {
			f.touchDirty()
		}
		if f.dirty.isEmpty() {
			f.dirty.due = false
			return
		}
		at, e := f.unlist()
		// Otherwise all its counts were taken already, or the store refuses it.
		if !e.Has(keys.FlagBusy|keys.FlagParked) && e.Owes() {
			f.take(r, at, e, e.Has(keys.FlagCold))
		}
	}
}

// takeParked retries the keys that the store refused. They keep flagParked until the store accepts
// them, so that callers that wait for the store get an error.
func (f *flushing) takeParked(r *round) {
	for len(f.parked.refs) > 0 && !r.full() {
		at := f.parked.pop()
		f.take(r, at, f.keys.Entry(at), false)
		r.parts[len(r.parts)-1].unparked = true
	}
}

// take adds all pending counts of one entry. If an operation waits for the key to be loaded, the
// round loads it.
func (f *flushing) take(r *round, at arena.Ref, e keys.Entry, load bool) {
	ns, key := e.Name()
	k := r.addKey(ns, key)
	k.ref, k.Load, k.Ladder = at, load || e.Has(keys.FlagShared), f.keys.Ladder(e)
	k.TTL = f.keys.Namespace(e).TTL
	if f.loads.join(r, k); k.Load {
		r.reads += readsOf(k.Ladder)
	}
	if e.Has(keys.FlagShared) {
		if shared := f.sharedKey(e); shared != nil {
			shared.BeginRead()
		}
	}
	r.Quiet = r.Quiet && e.Has(keys.FlagShared)
	k.Reset = e.Has(keys.FlagReset)
	e.Drop(keys.FlagReset)
	e.Set(keys.FlagBusy)
	if r.Now == 0 {
		r.Now = f.keys.Clock.Now()
	}
	folds := e.HasFolded()
	if folds { // once more, at the same time as the store
		k.ExactFrom = f.keys.Fold(e, k.Ladder, r.Now)
	}
	first := len(r.buckets)
	fresh, listed := f.cutPending(r, e)
	k.adds, k.compared = len(r.buckets), true
	counted := k.adds > first
	k.New = f.warm(e) && e.Synced() == 0 && counted
	// The time to live is set with the first count in a bucket of the coarsest level, and lasts for
	// as long as that bucket is needed.
	if counted && fresh || e.Has(keys.FlagRenew) {
		k.Renew, k.Listed = true, listed && !e.Has(keys.FlagRenew)
		e.Drop(keys.FlagRenew)
	}
	if k.Fold = counted && folds; k.Fold {
		e.SetFolded(false)
	}
}

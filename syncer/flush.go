package syncer

import (
	"time"

	"twotier.dev/twotier/internal/arena"
)

// flushing is how a partition tells the store what was counted: it cuts what is on the dirty list
// into rounds and takes over what the store answers. A round that writes is the only one that does;
// it takes along the loads of its keys, and brings back what it loads exactly.
//
// A round that the store has not answered stays the partition's flight, and goes again unchanged.
// Its methods are called with the partition locked, while nothing else writes to the store.
type flushing struct {
	*ledger
	loads   *loading
	scratch *scratch
	budget  budget
	opt     *Options
	totals  *totals
}

// cut returns what is to go next, nil if there is nothing.
func (f *flushing) cut(now time.Time) *Round {
	switch {
	case f.outbox.flight != nil:
		f.loads.recallKeys(f.outbox.flight)
		return f.outbox.flight // its outcome is unknown: the same again, under the same number
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

// cutFirst asks what data the store has before anything is counted: a copy of a round that did not
// say to what data it belongs might arrive after all is lost, and be restored a second time.
func (f *flushing) cutFirst(now time.Time) *Round {
	if len(f.outbox.queue) == 0 && !f.loads.exclusive && !(f.dirty.due && !f.dirty.isEmpty()) &&
		!f.verifyDue(now) {
		return nil
	}
	r := f.scratch.round(f.ledger)
	r.throughTicket = f.dirty.ackedTicket
	f.outbox.flight = r
	return r
}

// cutDirty cuts a round of what is due: of keys that have something to flush, or are to be loaded
// by a round that nothing overlaps. An empty one verifies.
func (f *flushing) cutDirty(now time.Time) *Round {
	r := f.scratch.round(f.ledger)
	r.Quiet = true // unless a key turns up that others rely on hearing of
	if now.After(f.parked.until) {
		f.takeParked(r)
	}
	f.takeExact(r)
	r.most = f.owed.room.share(f.keysOwed(), f.opt.MaxRoundKeys)
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

// seal ends the cutting of a round, and numbers it if it changes anything. It reports whether it
// does.
func (f *flushing) seal(r *Round) (changes bool) {
	if changes = r.seal(); changes {
		f.outbox.number(r)
	}
	r.Acked, r.throughTicket = f.outbox.acked, f.dirty.cutTicket
	return changes
}

// verifyDue reports whether the store should be asked if it still has everything, and what others
// did.
func (f *flushing) verifyDue(now time.Time) bool {
	return f.keys.table.Len() > 0 && now.Sub(f.store.verifiedAt) >= f.opt.VerifyInterval ||
		f.outbox.retry.failing() || f.store.mustVerify || f.loads.lossSeen
}

// takeExact adds the keys that are to be loaded by a round which nothing overlaps.
func (f *flushing) takeExact(r *Round) {
	if !f.loads.exclusive {
		return
	}
	f.loads.exclusive = false
	for name, w := range f.loads.waiting {
		switch at := f.keys.find(w.hash, w.ns, w.key); {
		case !w.exclusive:
		case r.full():
			f.loads.exclusive = true
			return
		case !w.waited():
			delete(f.loads.waiting, name)
		case at != 0:
			f.parked.remove(at)
			f.take(r, at, f.keys.entry(at), true)
		default:
			f.loads.moveTo(r, name)
			r.loadKey(w)
		}
	}
}

// takeDirty adds the keys that have something to flush.
func (f *flushing) takeDirty(r *Round) {
	f.dirty.beginCut()
	for taken := 0; f.dirty.due && !r.full(); taken++ {
		if taken%touchAtOnce == 0 {
			f.touchDirty()
		}
		if f.dirty.isEmpty() {
			f.dirty.due = false
			return
		}
		at, e := f.unlist()
		// Else all that it had was taken already, or the store refuses it.
		if !e.has(flagBusy|flagParked) && e.owes() {
			f.take(r, at, e, e.has(flagCold))
		}
	}
}

// takeParked gives the keys that the store refused another try. Until it has taken them they are
// marked as they were: who waits for the store is told.
func (f *flushing) takeParked(r *Round) {
	for len(f.parked.refs) > 0 && !r.full() {
		at := f.parked.pop()
		f.take(r, at, f.keys.entry(at), false)
	}
}

// take adds all that is pending of one entry, and the deletion of what has expired. Whoever waits
// for the key has it brought back.
func (f *flushing) take(r *Round, at arena.Ref, e entry, load bool) {
	ns, key := e.name()
	k := r.addKey(ns, key)
	k.ref, k.Load, k.Ladder = at, load || e.has(flagShared), f.keys.ladder(e)
	f.loads.join(r, k)
	r.Quiet = r.Quiet && e.has(flagShared)
	k.Reset = e.has(flagReset)
	e.drop(flagReset)
	e.set(flagBusy)
	first := len(r.buckets)
	fresh := f.keys.cutPending(r, e)
	k.adds = len(r.buckets)
	counted := k.adds > first
	k.New = f.warm(e) && e.synced() == 0 && counted
	// The time to live that was set with the first count in a coarsest bucket lasts for as long as
	// that is needed. A key that the store has lost since then says so when it is flushed, and has
	// it renewed.
	if counted && fresh || e.has(flagRenew) {
		k.TTL = f.keys.space(e).ttl
		e.drop(flagRenew)
	}
	f.keys.cutExpired(r, e)
	k.expired = len(r.buckets)
}

package syncer

import (
	"context"
	"fmt"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
)

// This file reserves: an Acquire with Op.Reserve is decided, but counted only when it is confirmed.
// It is one counter's part of an Acquire whose keys belong to several. Until then it counts as used
// in other decisions, wherever in the window it lies. It is not visible to reads and never reaches
// the store. It ends with the process.

// Confirm counts an operation that was admitted and reserved, at its TS: the time in its result. If
// there is no such reservation, nothing was counted and the error wraps ErrUnavailable. After
// ErrClosed nothing was counted either, but the reservation still exists. With AckStore it returns
// after the store has acknowledged the counts; with a stronger ack, after they are kept.
func (c *Counter) Confirm(ctx context.Context, op *twotier.Op) error {
	counts := *op
	counts.Reserve = ""
	k := c.calls.Get().(*call)
	defer c.calls.Put(k)
	k.begin(&counts, c.opt.Now())
	k.TS = op.TS
	k.locate(&c.directory)
	k.lock()
	err := k.countReserved(op.Reserve)
	k.unlock()
	switch {
	case err != nil || !c.opt.waitsForStore(&counts):
		return err
	case k.refused:
		return errRefusedKey
	}
	return k.awaitAck(ctx, &c.opt)
}

// Undo gives up the reservation of an operation. It reports whether there was one.
func (c *Counter) Undo(op *twotier.Op) bool {
	k := c.calls.Get().(*call)
	defer c.calls.Put(k)
	k.begin(op, c.opt.Now())
	k.locate(&c.directory)
	k.lock()
	defer k.unlock()
	return k.unreserve(op.Reserve)
}

// reserve reserves all checks of the operation. The partitions are locked.
func (k *call) reserve() {
	for i := range k.targets {
		t := &k.targets[i]
		b := append(append([]byte(nil), t.ns...), t.check.Key...)
		t.p.reservations.Add(k.Op.Reserve, b[:len(t.ns):len(t.ns)], b[len(t.ns):], t.check.N)
	}
}

// countReserved counts the reservation with an id and ends it or, on an error, does neither. A
// reservation is a promise to count, so there is no check for room: others may have decided by now
// that it is counted. The partitions are locked.
func (k *call) countReserved(id string) error {
	for _, p := range k.parts {
		if p.phase >= closed {
			return twotier.ErrClosed
		}
	}
	if !k.unreserve(id) {
		return fmt.Errorf("%w: no reservation %q", twotier.ErrUnavailable, id)
	}
	k.AddCounts(false)
	for i := range k.Changes {
		t := &k.targets[k.Changes[i].Check]
		in := &t.p.keys
		if t.ref = in.Find(t.hash, t.ns, t.check.Key); t.ref == 0 {
			t.ref = in.InsertCold(t.hash, t.ns, t.check.Key)
		}
		in.EntryAt(t.ref).SetLastUsed(in.Clock.Second())
	}
	for i := range k.Changes {
		k.applyChange(&k.Changes[i])
	}
	return nil
}

// unreserve removes a reservation from the partitions, which are locked, and reports whether there
// was one.
func (k *call) unreserve(id string) (found bool) {
	for _, p := range k.parts {
		found = p.reservations.Remove(id) || found
		if len(p.reservations) == 0 {
			p.settled.wake() // a partition may wait to be handed over
		}
	}
	return found
}

// shortFor is the age of a hold from which on counts of it that the store lacks are lost: the
// counter that made them has ended, or is paused for longer than that.
const shortFor = time.Minute

// checkTaken returns why an Acquire may not take counts back, or nil.
func (k *call) checkTaken() error {
	for i := range k.targets {
		if err := k.checkTakes(&k.targets[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkTakes returns why the target's counts can't be taken back, or nil: the store can't be asked
// how many there are, or others may have some.
func (k *call) checkTakes(t *target) error {
	switch {
	case t.check.N >= 0:
		return nil
	case k.Op.Reserves():
		return errTakesReserved
	case t.lacksStoreCounts():
		return errStoreDown
	case t.fresh && !t.check.IsLease() && k.isShort(t):
		return errNotStored
	case !k.Op.Recalled && t.p.ownership == owned && !t.check.IsLease() && t.mayBeLent():
		return ErrLent
	}
	return nil
}

// isShort reports whether there is less to take back than a hold has counted, and counts of it may
// still arrive in the store: another counter has them, which is paused or cut off from this one.
func (k *call) isShort(t *target) bool {
	need := -t.check.N
	k.view(t).SelectAt(k.TS, need, func(_ leaparray.Stretch, n int64) { need -= n })
	return need > 0 && (!t.loaded || k.present-k.TS < shortFor.Milliseconds())
}

package syncer

import (
	"context"
	"fmt"
	"sync"
	"twotier.dev/twotier"
)

// reservation is an Acquire that was decided but is counted only when it is confirmed: one
// counter's part of an Acquire whose keys belong to several. Until then it counts as used in other
// decisions, wherever in the window it lies. It is not visible to reads and never reaches the
// store. It ends with the process.
type reservation struct {
	in     *reservations // where it is registered once decided
	id     string
	checks []twotier.Check
	ts     int64
}

// reservations holds the reservations that were neither confirmed nor undone.
type reservations struct {
	mu   sync.Mutex
	byID map[string]*reservation
}

// newReservation returns an empty reservation for a prepared call whose operation reserves.
func (c *Counter) newReservation(k *call) *reservation {
	return &reservation{in: &c.reservations, id: k.op.Reserve, ts: k.ts}
}

// reserve reserves all checks of the operation. The partitions are locked.
func (k *call) reserve() {
	for i := range k.targets {
		t := &k.targets[i]
		if t.check.N == 0 {
			continue // a ban
		}
		b := append(append([]byte(nil), t.ns...), t.check.Key...)
		ns, key := b[:len(t.ns):len(t.ns)], b[len(t.ns):]
		t.p.reservations.Add(k.reservation.id, ns, key, t.check.N)
		k.reservation.checks = append(k.reservation.checks,
			twotier.Check{NS: ns, Key: key, N: t.check.N})
	}
	k.reservation.in.put(k.reservation)
}

// take removes and returns the reservation with this id, or nil if there is none.
func (r *reservations) take(id string) *reservation {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.byID[id]
	delete(r.byID, id)
	return taken
}

func (r *reservations) put(held *reservation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byID[held.id] = held
}

// Reserved lists the reserved checks of an id, and the time at which they will be counted.
func (c *Counter) Reserved(id string) (checks []twotier.Check, ts int64) {
	c.reservations.mu.Lock()
	defer c.reservations.mu.Unlock()
	if r := c.reservations.byID[id]; r != nil {
		checks, ts = r.checks, r.ts
	}
	return checks, ts
}

// Confirm counts a reservation. If there is no such reservation, nothing was counted and the error
// wraps ErrUnavailable. After ErrClosed nothing was counted either, but the reservation still
// exists. With AckStore it returns after the store has acknowledged the counts; with a stronger
// ack, after they are kept.
func (c *Counter) Confirm(ctx context.Context, id string, ack twotier.Ack) error {
	r := c.reservations.take(id)
	if r == nil {
		return fmt.Errorf("%w: no reservation %q", twotier.ErrUnavailable, id)
	}
	op := twotier.Op{Kind: twotier.Acquire, TS: r.ts, Ack: ack, Checks: r.checks}
	k := c.calls.Get().(*call)
	defer c.calls.Put(k)
	k.begin(&op, c.opt.Now())
	k.ts = r.ts
	k.locate(&c.directory)
	k.lock()
	err := k.countReserved(id)
	if err != nil {
		c.reservations.put(r)
	}
	k.unlock()
	switch {
	case err != nil || !c.durability.waits(&op):
		return err
	case k.refused:
		return errRefusedKey
	}
	return k.commit(ctx, &c.durability)
}

// countReserved counts the reservation with an id and ends it or, on an error, does neither. A
// reservation is a promise to count, so there is no check for room: others may have decided by now
// that it is counted. The partitions are locked.
func (k *call) countReserved(id string) error {
	for _, p := range k.parts {
		if p.closed {
			return twotier.ErrClosed
		}
	}
	for i := range k.targets {
		t := &k.targets[i]
		keys := &t.p.keys
		if t.ref = keys.Find(t.hash, t.ns, t.check.Key); t.ref == 0 {
			t.ref = keys.InsertCold(t.hash, t.ns, t.check.Key)
		}
		keys.Entry(t.ref).SetUsed(keys.Clock.Second())
	}
	k.unreserve(id)
	k.count()
	return nil
}

// Undo gives up a reservation. It reports whether there was one.
func (c *Counter) Undo(id string) bool {
	r := c.reservations.take(id)
	if r == nil {
		return false
	}
	k := c.calls.Get().(*call)
	defer c.calls.Put(k)
	k.begin(&twotier.Op{Kind: twotier.Acquire, TS: r.ts, Checks: r.checks}, c.opt.Now())
	k.locate(&c.directory)
	k.lock()
	k.unreserve(id)
	k.unlock()
	return true
}

// unreserve removes a reservation from the partitions, which are locked.
func (k *call) unreserve(id string) {
	for _, p := range k.parts {
		if p.reservations.Remove(id); len(p.reservations) == 0 {
			p.settled.wake() // a partition may wait to be handed over
		}
	}
}

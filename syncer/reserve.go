package syncer

import (
	"slices"
	"sync"

	"twotier.dev/twotier"
)

// reservation is an Acquire that was decided but is counted only when it is confirmed: one
// counter's part of an Acquire whose keys belong to several. Until then it counts as used in other
// decisions, wherever in the window it lies. It is not visible to reads and never reaches the
// store. It ends with the process.
type reservation struct {
	in     *reservationBook // where it is registered once decided
	id     string
	checks []twotier.Check
	ts     int64
}

// reservationBook holds the reservations that were neither confirmed nor undone.
type reservationBook struct {
	mu   sync.Mutex
	byID map[string]*reservation
}

// newReservation returns an empty reservation for a prepared call whose operation reserves.
func (o *operations) newReservation(k *call) *reservation {
	return &reservation{in: &o.reservations, id: k.Op.Reserve, ts: k.TS}
}

// reserve reserves all checks of the operation. The partitions are locked.
func (k *call) reserve() {
	for i := range k.targets {
		t := &k.targets[i]
		if t.check.N == 0 {
			continue
		}
		b := append(append([]byte(nil), t.ns...), t.check.Key...)
		ns, key := b[:len(t.ns):len(t.ns)], b[len(t.ns):]
		t.p.reservations.Add(k.reservation.id, ns, key, t.check.N)
		k.reservation.checks = append(k.reservation.checks, twotier.Check{Kind: t.check.Kind,
			NS: ns, Key: key, N: t.check.N, Until: t.check.Until,
			Values: slices.Clone(t.check.Values)})
	}
	k.reservation.in.put(k.reservation)
}

// remove removes and returns the reservation with this id, or nil if there is none.
func (r *reservationBook) remove(id string) *reservation {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.byID[id]
	delete(r.byID, id)
	return taken
}

func (r *reservationBook) put(held *reservation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byID[held.id] = held
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
	for i := range k.targets {
		t := &k.targets[i]
		in := &t.p.keys
		if t.ref = in.Find(t.hash, t.ns, t.check.Key); t.ref == 0 {
			t.ref = in.InsertCold(t.hash, t.ns, t.check.Key)
		}
		in.EntryAt(t.ref).SetLastUsed(in.Clock.Second())
	}
	k.unreserve(id)
	k.Changes = k.Changes[:0]
	k.AddCounts(false)
	for i := range k.Changes {
		k.applyChange(&k.Changes[i])
	}
	return nil
}

// unreserve removes a reservation from the partitions, which are locked.
func (k *call) unreserve(id string) {
	for _, p := range k.parts {
		if p.reservations.Remove(id); len(p.reservations) == 0 {
			p.settled.wake() // a partition may wait to be handed over
		}
	}
}

package rounds

import (
	"maps"
	"slices"
	"time"

	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/syncer/internal/shifts"
)

// DirtyList holds the keys of a partition with something to flush, oldest first. Every key that is
// put on it draws a ticket, and tickets come off it in the same order:
//
//	AckedTicket <= CutTicket <= LastTicket
//
// So a count is in the store once AckedTicket has reached its ticket. The partition's lock guards
// the list.
type DirtyList struct {
	refs    []arena.Ref
	first   int           // refs before this position are off the list
	Shift   *shifts.Shift // roused with every push
	CutAt   time.Time     // when due keys were cut last
	Weighed int           // how many keys the search for the largest counts has seen
	// WeighedAt is when that search was made last.
	WeighedAt time.Time

	LastTicket  uint64 // drawn last
	dueTicket   uint64 // up to here, keys are to be flushed now
	dueAgain    bool   // the next cut moves dueTicket to the end of the list
	CutTicket   uint64 // up to here, keys are off the list: in a round, or had nothing to flush
	AckedTicket uint64 // up to here, counts are in the store
	// Tickets above handedOffFrom, up to and including handedOffTo, were handed off before their
	// counts were in the store.
	handedOffFrom, handedOffTo uint64
	// Keys with these hashes were handed off as well, although their tickets up to refusedTo are
	// acknowledged: the store had refused them.
	refused   KeyHashes
	refusedTo uint64

	batches []ticketBatch // the tickets that are not acknowledged yet, in order
	drawing bool          // new tickets still belong to the last batch
}

// KeyHashes is a set of hashes of keys.
type KeyHashes map[uint32]struct{}

// ParkedPause is how long the store is not asked again about keys that it refuses.
const ParkedPause = 5 * time.Second

// ticketBatch is the run of tickets drawn after one round was cut and before the next.
type ticketBatch struct {
	first uint64 // ticket
	since time.Time
}

// minUnused is how many places at the front of a dirty list may stay unused in any case.
const minUnused = 16

// Push appends a key and draws a ticket for it.
func (d *DirtyList) Push(r arena.Ref) {
	if d.first > len(d.refs)/2 && d.first > minUnused {
		d.refs = d.refs[:copy(d.refs, d.refs[d.first:])]
		d.first = 0
	}
	d.refs = append(d.refs, r)
	d.LastTicket++
	d.Shift.Rouse()
	if !d.drawing {
		d.drawing = true
		d.forgetAcked()
		d.batches = append(d.batches, ticketBatch{first: d.LastTicket, since: time.Now()})
	}
}

// IsEmpty reports whether no key is on the list.
func (d *DirtyList) IsEmpty() bool { return d.first == len(d.refs) }

// Listed returns the keys on the list. The slice is valid until the next push.
func (d *DirtyList) Listed() []arena.Ref { return d.refs[d.first:] }

// Pop takes the first key off the list, which must not be empty.
func (d *DirtyList) Pop() arena.Ref {
	r := d.refs[d.first]
	if d.first++; d.first == len(d.refs) {
		d.refs, d.first = d.refs[:0], 0
	}
	d.CutTicket++
	return r
}

// MakeDue makes the keys on the list due, by the clock or because a caller waits. The next rounds
// flush all that are on the list when the first of these rounds is cut. Keys that are pushed later
// wait for the next call, so that no key is flushed twice for one call.
func (d *DirtyList) MakeDue() { d.dueTicket, d.dueAgain = d.LastTicket, true }

// IsDue reports whether keys are due.
func (d *DirtyList) IsDue() bool { return d.CutTicket < d.dueTicket }

// BeginCut marks the start of a cut of the due keys: all later counts belong to a new batch.
func (d *DirtyList) BeginCut() {
	if !d.IsDue() {
		return
	}
	if d.CutAt, d.drawing = time.Now(), false; d.dueAgain {
		d.dueTicket, d.dueAgain = d.LastTicket, false
	}
}

// Move updates the references to entries that have moved.
func (d *DirtyList) Move(to map[arena.Ref]arena.Ref) {
	for i, r := range d.refs {
		d.refs[i] = to[r]
	}
}

// Unacked returns the number of tickets that the store has not acknowledged.
func (d *DirtyList) Unacked() int64 { return int64(d.LastTicket - d.AckedTicket) }

// OldestTime returns when the oldest unacknowledged ticket was drawn, or a little earlier: all
// tickets of a batch count as old as its first. It is zero if the store has acknowledged
// everything.
func (d *DirtyList) OldestTime() (since time.Time) {
	d.forgetAcked()
	if len(d.batches) > 0 && d.Unacked() > 0 {
		since = d.batches[0].since
	}
	return since
}

// forgetAcked forgets the batches that are fully acknowledged, except for the last.
func (d *DirtyList) forgetAcked() {
	for len(d.batches) > 1 && d.batches[1].first <= d.AckedTicket+1 {
		d.batches = d.batches[1:]
	}
}

// HandOff records that another counter now answers for everything unacknowledged, and for the keys
// that the store has refused.
func (d *DirtyList) HandOff(refused KeyHashes) {
	if d.handedOffTo == 0 { // keys taken back may not have been sent since
		maps.Copy(refused, d.refused)
	}
	d.refused, d.refusedTo = refused, d.LastTicket
	d.handedOffFrom, d.handedOffTo = d.AckedTicket, d.LastTicket
}

// CancelHandOff records that no other counter answers for any ticket. The refused keys stay: while
// they are being sent again, nothing else shows that the store lacks them.
func (d *DirtyList) CancelHandOff() { d.handedOffFrom, d.handedOffTo = 0, 0 }

// HandedOff reports whether another counter answers for a ticket.
func (d *DirtyList) HandedOff(ticket uint64) bool {
	return d.handedOffFrom < ticket && ticket <= d.handedOffTo
}

// HandedOffRefused reports whether the store had refused a key with this hash before the last
// handoff of the partition, even one that was taken back, and the ticket is older than that.
func (d *DirtyList) HandedOffRefused(hash uint32, ticket uint64) bool {
	_, refused := d.refused[hash]
	return refused && 0 < ticket && ticket <= d.refusedTo
}

// Clear empties the list, and marks every ticket as acknowledged.
func (d *DirtyList) Clear() {
	d.refs, d.first, d.batches, d.drawing = nil, 0, nil, false
	d.dueTicket, d.CutTicket, d.AckedTicket = d.LastTicket, d.LastTicket, d.LastTicket
}

// ParkedKeys are keys that the store refuses. They stay pending, out of the way of other keys, and
// are retried now and then.
type ParkedKeys struct {
	Refs  []arena.Ref
	Until time.Time // when they are tried again
	Since time.Time // when the first of them was parked; zero if there is none
}

// Add parks a key.
func (k *ParkedKeys) Add(r arena.Ref, now time.Time) {
	if len(k.Refs) == 0 {
		k.Until = now.Add(ParkedPause)
	}
	if k.Since.IsZero() {
		k.Since = now
	}
	k.Refs = append(k.Refs, r)
}

// Remove takes a key off the list.
func (k *ParkedKeys) Remove(r arena.Ref) {
	k.Refs = slices.DeleteFunc(k.Refs, func(o arena.Ref) bool { return o == r })
}

// Pop removes and returns the key that was parked last. There must be one.
func (k *ParkedKeys) Pop() arena.Ref {
	last := len(k.Refs) - 1
	r := k.Refs[last]
	k.Refs = k.Refs[:last]
	return r
}

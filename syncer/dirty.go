package syncer

import (
	"maps"
	"slices"
	"time"

	"twotier.dev/twotier/internal/arena"
)

// dirtyList holds the keys of a partition with something to flush, oldest first. Every key that is
// put on it draws a ticket, and tickets come off it in the same order:
//
//	ackedTicket <= cutTicket <= lastTicket
//
// So a count is in the store once ackedTicket has reached its ticket. The partition's lock guards
// the list.
type dirtyList struct {
	refs    []arena.Ref
	first   int    // refs before this position are off the list
	due     bool   // by the clock, or because a caller waits; a load alone flushes nothing
	weighed int    // how many keys of the list takeLargest has looked at
	shift   *shift // roused with every push

	lastTicket  uint64 // drawn last
	cutTicket   uint64 // up to here, keys are off the list: in a round, or had nothing to flush
	ackedTicket uint64 // up to here, counts are in the store
	// Tickets above handedOffFrom, up to and including handedOffTo, were handed off before their
	// counts were in the store.
	handedOffFrom, handedOffTo uint64
	// Keys with these hashes were handed off as well, although their tickets up to refusedTo are
	// acknowledged: the store had refused them.
	refused   keyHashes
	refusedTo uint64

	batches []ticketBatch // the tickets that are not acknowledged yet, in order
	drawing bool          // new tickets still belong to the last batch
}

// ticketBatch is the run of tickets drawn after one round was cut and before the next.
type ticketBatch struct {
	first uint64 // ticket
	since time.Time
}

// minUnused is how many places at the front of a dirty list may stay unused in any case.
const minUnused = 16

// push appends a key and draws a ticket for it.
func (d *dirtyList) push(r arena.Ref) {
	if d.first > len(d.refs)/2 && d.first > minUnused {
		d.refs = d.refs[:copy(d.refs, d.refs[d.first:])]
		d.first = 0
	}
	d.refs = append(d.refs, r)
	d.lastTicket++
	d.shift.rouse()
	if !d.drawing {
		d.drawing = true
		d.forgetAcked()
		d.batches = append(d.batches, ticketBatch{first: d.lastTicket, since: time.Now()})
	}
}

func (d *dirtyList) isEmpty() bool { return d.first == len(d.refs) }

// waiting returns the keys on the list. The slice is valid until the next push.
func (d *dirtyList) waiting() []arena.Ref { return d.refs[d.first:] }

// pop takes the first key off the list, which must not be empty.
func (d *dirtyList) pop() arena.Ref {
	r := d.refs[d.first]
	if d.first++; d.first == len(d.refs) {
		d.refs, d.first = d.refs[:0], 0
	}
	d.cutTicket++
	return r
}

// beginCut marks the start of a cut: if the list is due, all later counts belong to a new batch.
func (d *dirtyList) beginCut() { d.drawing = d.drawing && !d.due }

// move updates the references to entries that have moved.
func (d *dirtyList) move(to map[arena.Ref]arena.Ref) {
	for i, r := range d.refs {
		d.refs[i] = to[r]
	}
}

// unacked returns the number of tickets that the store has not acknowledged.
func (d *dirtyList) unacked() int64 { return int64(d.lastTicket - d.ackedTicket) }

// oldest returns when the oldest unacknowledged ticket was drawn, or a little earlier: all tickets
// of a batch count as old as its first. It is zero if the store has acknowledged everything.
func (d *dirtyList) oldest() (since time.Time) {
	d.forgetAcked()
	if len(d.batches) > 0 && d.unacked() > 0 {
		since = d.batches[0].since
	}
	return since
}

// forgetAcked forgets the batches that are fully acknowledged, except for the last.
func (d *dirtyList) forgetAcked() {
	for len(d.batches) > 1 && d.batches[1].first <= d.ackedTicket+1 {
		d.batches = d.batches[1:]
	}
}

// handOff records that another counter now answers for everything unacknowledged, and for the keys
// that the store has refused.
func (d *dirtyList) handOff(refused keyHashes) {
	if d.handedOffTo == 0 { // keys taken back may not have been sent since
		maps.Copy(refused, d.refused)
	}
	d.refused, d.refusedTo = refused, d.lastTicket
	d.handedOffFrom, d.handedOffTo = d.ackedTicket, d.lastTicket
}

// takeBack records that no other counter answers for any ticket. The refused keys stay: while they
// are being sent again, nothing else shows that the store lacks them.
func (d *dirtyList) takeBack() { d.handedOffFrom, d.handedOffTo = 0, 0 }

// handedOff reports whether another counter answers for a ticket.
func (d *dirtyList) handedOff(ticket uint64) bool {
	return d.handedOffFrom < ticket && ticket <= d.handedOffTo
}

// handedOffRefused reports whether the store had refused a key with this hash before the last
// handoff of the partition, even one that was taken back, and the ticket is older than that.
func (d *dirtyList) handedOffRefused(hash uint32, ticket uint64) bool {
	_, refused := d.refused[hash]
	return refused && 0 < ticket && ticket <= d.refusedTo
}

// clear empties the list, and marks every ticket as acknowledged.
func (d *dirtyList) clear() {
	d.refs, d.first, d.batches, d.drawing = nil, 0, nil, false
	d.cutTicket, d.ackedTicket = d.lastTicket, d.lastTicket
}

// parkedKeys are keys that the store refuses. They stay pending, out of the way of other keys, and
// are retried now and then.
type parkedKeys struct {
	refs  []arena.Ref
	until time.Time // when they are tried again
	since time.Time // when the first of them was parked; zero if there is none
}

func (k *parkedKeys) add(r arena.Ref, now time.Time) {
	if len(k.refs) == 0 {
		k.until = now.Add(parkedPause)
	}
	if k.since.IsZero() {
		k.since = now
	}
	k.refs = append(k.refs, r)
}

// putBack parks a key again after a retry, and keeps the time of the next one.
func (k *parkedKeys) putBack(r arena.Ref) { k.refs = append(k.refs, r) }

func (k *parkedKeys) remove(r arena.Ref) {
	k.refs = slices.DeleteFunc(k.refs, func(o arena.Ref) bool { return o == r })
}

// pop removes and returns the key that was parked last. There must be one.
func (k *parkedKeys) pop() arena.Ref {
	last := len(k.refs) - 1
	r := k.refs[last]
	k.refs = k.refs[:last]
	return r
}

// move updates the references to entries that have moved.
func (k *parkedKeys) move(to map[arena.Ref]arena.Ref) {
	for i, r := range k.refs {
		k.refs[i] = to[r]
	}
}

// settle clears since if no key is parked. It must not be called during a retry.
func (k *parkedKeys) settle() {
	if len(k.refs) == 0 {
		k.since = time.Time{}
	}
}

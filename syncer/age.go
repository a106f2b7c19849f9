package syncer

import "time"

// batch is a run of tickets that were drawn after one round was cut and before the next.
type batch struct {
	first uint64 // ticket
	since time.Time
}

// draw draws a ticket for a key that is put on the dirty list.
func (p *partition) draw() {
	p.drawn++
	p.account()
	if !p.drawing {
		p.drawing = true
		p.batches = append(p.batches, batch{first: p.drawn, since: time.Now()})
	}
}

// unflushedSince is when the oldest count of the partition was made that the store has not acknowledged, or a little before:
// those of a batch are taken to be as old as its first. It is zero if the store has all.
func (p *partition) unflushedSince() (since time.Time) {
	for len(p.batches) > 1 && p.batches[1].first <= p.covered+1 {
		p.batches = p.batches[1:]
	}
	if p.keys.pendingBuckets == 0 {
		return since
	}
	if len(p.batches) > 0 && p.drawn > p.covered {
		since = p.batches[0].since
	}
	for _, other := range []time.Time{p.parkedSince, p.adoptedSince} {
		if since.IsZero() || !other.IsZero() && other.Before(since) {
			since = other
		}
	}
	return since
}

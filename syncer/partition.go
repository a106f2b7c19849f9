package syncer

import (
	"sync"
	"sync/atomic"
	"time"

	"twotier/internal/arena"
)

// partition holds the keys that hash to it, what of them the store has not acknowledged, and its dealings with the
// store.
type partition struct {
	id      int
	c       *Counter
	flusher *batcher // flushes
	loader  *batcher // loads

	mu        sync.Mutex
	ownership ownership
	keys      keyspace

	dirty        dirtyList
	parked       parkedKeys
	accounted    atomic.Int64 // what the flusher knows of what waits for the store
	shared       []sharedKey  // few
	loads        pendingLoads
	settled      chan struct{} // closed when a round is settled; nil if nobody waits
	outbox       outbox
	handoff      *handoff // ready to be handed over
	handoffs     uint64   // how many times it was
	reservations []reservedKey
	republish    *republish
	store        storeState
	retry        backoff      // after a failed exchange, but for loads
	closed       bool         // nothing more is counted
	draining     bool         // nothing but what was promised is
	inQueue      [queues]bool // guarded by the locks of the batchers
}

// enlist puts an entry on the dirty list, unless it is there or parked.
func (p *partition) enlist(r arena.Ref, e entry) {
	if e.has(flagDirty | flagParked) {
		return
	}
	e.set(flagDirty)
	p.dirty.push(r)
	p.account()
}

// unlist takes the first entry off the dirty list.
func (p *partition) unlist() (arena.Ref, entry) {
	r := p.dirty.pop()
	e := p.keys.entry(r)
	e.drop(flagDirty)
	return r, e
}

// warm reports whether memory holds all that the store is known to hold of the key.
func (p *partition) warm(e entry) bool {
	return !e.has(flagCold) && e.gen() == p.store.generation && !p.outbox.maybeSent
}

func (p *partition) setWarm(e entry) {
	e.drop(flagCold)
	e.setGen(p.store.generation)
}

// wait returns a channel that is closed when the next round is settled.
func (p *partition) wait() <-chan struct{} {
	if p.settled == nil {
		p.settled = make(chan struct{})
	}
	return p.settled
}

func (p *partition) wake() {
	if p.settled != nil {
		close(p.settled)
		p.settled = nil
	}
}

// unflushedSince is when the oldest count of the partition was made that the store has not
// acknowledged, or a little before. It is zero if the store has all.
func (p *partition) unflushedSince() (since time.Time) {
	oldest := p.dirty.oldest()
	if p.keys.pendingBuckets == 0 {
		return since
	}
	for _, t := range []time.Time{oldest, p.parked.since, p.outbox.importedSince} {
		if since.IsZero() || !t.IsZero() && t.Before(since) {
			since = t
		}
	}
	return since
}

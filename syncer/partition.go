package syncer

import (
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier/internal/arena"
)

// partition holds the keys that hash to it, what of them the store has not acknowledged, and its
// dealings with the store. Each part says what it is about; none knows of another.
type partition struct {
	id           int
	c            *Counter
	flusher      *batcher
	loader       *batcher
	owedReported atomic.Int64 // what the flusher knows of what waits for the store
	inQueue      [queues]bool // guarded by the locks of the batchers

	mu        sync.Mutex // guards what follows
	ownership ownership
	closed    bool          // nothing more is counted
	draining  bool          // nothing but what was promised is
	settled   chan struct{} // closed when a round is settled; nil if nobody waits

	keys         keyspace
	shared       sharedKeys
	reservations reservedKeys

	dirty  dirtyList
	parked parkedKeys
	outbox outbox
	retry  backoff // after a failed exchange, but for loads
	loads  pendingLoads
	store  storeState

	republish *republish // nil unless a store that has lost data is told what memory knows
	handoff   *handoff   // nil unless it is ready to be handed off
	handoffs  uint64     // how many times it was
}

// enlist puts an entry on the dirty list, unless it is there or parked.
func (p *partition) enlist(r arena.Ref, e entry) {
	if e.has(flagDirty | flagParked) {
		return
	}
	e.set(flagDirty)
	p.dirty.push(r)
	p.reportOwed()
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
	if since = p.waitingSince(); p.keys.pendingBuckets > 0 {
		since = earlier(since, p.parked.since)
	}
	return since
}

// waitingSince is that of counts which the store has not refused: those that are to go first.
func (p *partition) waitingSince() time.Time {
	oldest := p.dirty.oldest()
	if p.keys.pendingBuckets == 0 {
		return time.Time{}
	}
	return earlier(oldest, p.outbox.importedSince)
}

// earlier returns the earlier of two times, of which either may be zero: that is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

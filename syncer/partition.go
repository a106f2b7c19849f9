package syncer

import (
	"sync"
	"time"
)

// partition is a lock and what it guards, and the batchers that exchange rounds with the store for
// it. Its own methods take the lock; those of what is guarded, and of its parts, want it held.
type partition struct {
	flusher *batcher
	loader  *batcher
	inQueue [queues]bool // guarded by the locks of the batchers

	mu sync.Mutex
	guarded
}

// guarded is what the lock of a partition guards: whether this counter decides about its keys, what
// is known of them, and the parts that deal with the store or another counter. Which of those may
// do so at a moment is said in exchange.go; none knows of that.
type guarded struct {
	// What every operation looks at comes first, so that it shares few cache lines with the rest.
	ownership ownership
	draining  bool    // nothing more is counted but what was promised
	closed    bool    // nothing more is counted
	stopped   bool    // nothing more is settled
	memory    *memory // of all partitions
	health    *health // of the store
	ledger
	loads        loading
	reservations reservedKeys

	flushing    flushing
	restoration restoration
	handoff     handoff

	// readWithin is how long ago the store may have told what others have flushed.
	readWithin time.Duration
}

// init makes the partition ready, whose batchers are known.
func (p *partition) init(id int, c *Counter) {
	p.id, p.mostKeys, p.outbox.writer = id, c.opt.MaxRoundKeys, c.opt.Writer
	p.keys = newKeyspace(c.memory.pool, &c.namespaces, c.clock)
	p.owed.room = &p.flusher.room
	if c.opt.NotOwner {
		p.ownership = notOwned
	}
	p.memory, p.health, p.readWithin = &c.memory, &c.health, c.opt.readWithin()
	p.flushing = flushing{ledger: &p.ledger, loads: &p.loads, scratch: &p.flusher.scratch,
		budget: &p.guarded, opt: &c.opt, totals: &c.totals}
	p.loads = loading{ledger: &p.ledger, scratch: &p.loader.scratch, budget: &p.guarded,
		totals: &c.totals}
	p.restoration = restoration{ledger: &p.ledger, loads: &p.loads, totals: &c.totals,
		report: &c.report}
	p.handoff = handoff{ledger: &p.ledger, flushing: &p.flushing, loads: &p.loads,
		restoration: &p.restoration, budget: &p.guarded}
}

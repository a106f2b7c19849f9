package syncer

import (
	"sync"
	"time"
)

// partition is a lock and what it guards, and the batchers that exchange rounds with the store for
// the partition. Its own methods take the lock. The methods of guarded and of its parts need it
// held.
type partition struct {
	flusher *batcher
	loader  *batcher
	inQueue [queues]bool // guarded by the locks of the batchers

	mu sync.Mutex
	guarded
}

// guarded is what the lock of a partition guards: whether this counter decides about its keys, what
// is known of them, and the parts that deal with the store or another counter. Which part may do so
// when is decided in exchange.go, not by the parts themselves.
type guarded struct {
	// What every operation looks at comes first, to share few cache lines with the rest.
	ownership ownership
	draining  bool    // nothing more is counted, except confirmed reservations
	closed    bool    // nothing more is counted
	stopped   bool    // nothing more is settled
	memory    *memory // shared by all partitions
	health    *health // the store's
	ledger
	loads        loading
	reservations reservedKeys

	flushing    flushing
	restoration restoration
	handoff     handoff

	// readWithin is how long ago the store may at most have told what others have flushed, if a
	// decision relies on it.
	readWithin time.Duration
}

// init initializes a partition whose batchers are set.
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

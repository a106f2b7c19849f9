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
	// keyReader is nil if the store doesn't list its keys.
	keyReader *keyReader
	inQueue   [queues]bool // guarded by the locks of the batchers

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
	paused    bool    // nothing is borrowed
	memory    *memory // shared by all partitions
	health    *health // the store's
	ledger
	loads        loading
	reservations reservedKeys

	flushing    flushing
	restoration restoration
	handoff     handoff
	awaited     awaitedResets

	// readWithin is how long ago the store may at most have told what others have flushed, if a
	// decision relies on it.
	readWithin time.Duration
	// absenceAge is how long ago the store may at most have said what it has, if a key is taken for
	// new without a read.
	absenceAge time.Duration
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
	p.keyReader, p.absenceAge = c.keyReader, c.opt.VerifyInterval
	p.lists = c.keyReader != nil
	p.keys.stored, p.listing = newStoredKeys(&c.memory.lists), &listing{}
	p.flushing = flushing{ledger: &p.ledger, loads: &p.loads, scratch: &p.flusher.scratch,
		budget: &p.guarded, opt: &c.opt, totals: &c.totals}
	p.loads = loading{ledger: &p.ledger, scratch: &p.loader.scratch, width: &p.loader.width,
		budget: &p.guarded, totals: &c.totals}
	p.restoration = restoration{ledger: &p.ledger, loads: &p.loads, totals: &c.totals,
		report: &c.report}
	p.handoff = handoff{ledger: &p.ledger, flushing: &p.flushing, loads: &p.loads,
		restoration: &p.restoration, budget: &p.guarded}
}

// refuses reports whether the partition takes no operations now. nonOwner says that the operation
// may be executed in place of the owner.
func (g *guarded) refuses(nonOwner bool) bool {
	return g.ownership != owned && (g.ownership == handingOff || !nonOwner)
}

// refused reports whether the target's partition takes no operations now, see refuses.
func (t *target) refused(op *Op) bool { return t.p.refuses(op.AllowNonOwner || t.check.InPlace) }

// failedLoadsDown is how many consecutive loads of a partition must fail before it is known that it
// can't be read. A single broken connection says nothing yet.
const failedLoadsDown = 2

// storeDown reports whether the store is known to be out of reach for the partition's keys. A store
// that is late, or refuses, is not down.
func (g *guarded) storeDown() bool {
	return g.loads.retry.failures >= failedLoadsDown || g.health.down.Load()
}

// degraded reports whether the store did not take the last round, or can't be asked: answers come
// from memory alone.
func (g *guarded) degraded() bool { return g.outbox.retry.failing() || g.storeDown() }

// The shortest and the longest pause before a retry, and the longest after a refusal.
const (
	firstBackoff   = 25 * time.Millisecond
	longestBackoff = 2 * time.Second
	longestRefused = 200 * time.Millisecond // operations may be waiting
)

// backoff says when to retry something that failed: after a pause that doubles with each
// consecutive failure.
type backoff struct {
	failures int // in a row
	pause    time.Duration
	until    time.Time
}

func (b *backoff) failing() bool { return b.failures > 0 }

// waiting reports whether it is too early to retry.
func (b *backoff) waiting(now time.Time) bool { return now.Before(b.until) }

func (b *backoff) fail(now time.Time) {
	b.failures++
	b.pause = min(max(2*b.pause, firstBackoff), longestBackoff)
	b.until = now.Add(b.pause)
}

// postpone has a retry wait for the shortest pause after something that was late: it is no failure.
func (b *backoff) postpone(now time.Time) { *b = backoff{until: now.Add(firstBackoff)} }

// refuse has a retry wait for a pause that doubles, but stays short, after the store has refused
// something as a whole. That it answers shows that it can be reached, so it is no failure.
func (b *backoff) refuse(now time.Time) {
	pause := min(max(2*b.pause, firstBackoff), longestRefused)
	*b = backoff{pause: pause, until: now.Add(pause)}
}

func (b *backoff) succeed() { *b = backoff{} }

package syncer

import (
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/loans"
)

// partition is a lock with the state it guards, and the batchers that exchange rounds with the
// store for the partition. Its own methods take the lock. The methods of guarded and of its parts
// need it held.
type partition struct {
	flusher *batcher
	loader  *batcher
	// keyReader is nil if the store doesn't list its keys.
	keyReader *keyReader
	inQueue   [queues]bool // guarded by the locks of the batchers

	mu sync.Mutex
	guarded
}

// guarded is the state that the lock of a partition guards: the ownership, the keys and their
// counts, and the parts that deal with the store or another counter. exchange.go decides which part
// may do so when, not the parts themselves.
type guarded struct {
	// The fields that every operation uses come first, to share few cache lines with the rest.
	ownership ownership
	draining  bool    // nothing more is counted, except confirmed reservations
	closed    bool    // nothing more is counted
	stopped   bool    // nothing more is settled
	paused    bool    // nothing is borrowed
	memory    *memory // shared by all partitions
	health    *health // the store's
	ledger
	loads        loading
	reservations loans.Reservations

	flushing    flushing
	restoration restoration
	handoff     handoff
	awaited     awaitedResets

	// sparedUntil is the second before which the partition gives nothing up for others, because it
	// had nothing to give.
	sparedUntil uint32
	// readWithin is the maximum age of the store's report of others' counts, if a decision relies
	// on it.
	readWithin time.Duration
	// absenceAge is the maximum age of the store's last report, if a key counts as new without a
	// read.
	absenceAge time.Duration
}

// directory finds the partition and the namespace of a key.
type directory struct {
	placement  twotier.Placement
	parts      []partition
	namespaces keys.Namespaces
}

// locate finds the partition and namespace of a check.
func (d *directory) locate(t *target, check *twotier.Check) {
	t.check = check
	if !keys.IsDefault(check.NS) {
		t.ns = check.NS
		t.spIdx = d.namespaces.Index(check.NS)
	}
	t.sp = d.namespaces.At(t.spIdx)
	t.p = d.partitionOf(check)
	t.hash = d.namespaces.Hash(t.ns, check.Key)
}

// partitionOf returns the partition of a check's key.
func (d *directory) partitionOf(check *twotier.Check) *partition {
	return &d.parts[d.placement.Of(check.NS, check.Key)]
}

// init initializes a partition whose batchers are set.
func (p *partition) init(id int, c *Counter) {
	p.id, p.mostKeys, p.outbox.Writer = id, c.opt.MaxRoundKeys, c.opt.Writer
	p.keys = keys.New(c.memory.pool, &c.namespaces, c.clock)
	p.owed.room = p.flusher.room
	if c.opt.NotOwner {
		p.ownership = notOwned
	}
	p.memory, p.health, p.readWithin = &c.memory, &c.health, c.opt.readWithin()
	p.keyReader, p.absenceAge = c.keyReader, c.opt.VerifyInterval
	p.lists = c.keyReader != nil
	p.keys.Stored, p.listing = keys.NewStored(c.memory.lists), &listing{}
	p.flushing = flushing{ledger: &p.ledger, loads: &p.loads, scratch: &p.flusher.scratch,
		budget: &p.guarded, opt: &c.opt, totals: &c.totals}
	p.loads = loading{ledger: &p.ledger, scratch: &p.loader.scratch, width: &p.loader.width,
		budget: &p.guarded, totals: &c.totals}
	p.restoration = restoration{ledger: &p.ledger, loads: &p.loads, totals: &c.totals,
		report: &c.report}
	p.handoff = handoff{ledger: &p.ledger, flushing: &p.flushing, loads: &p.loads,
		restoration: &p.restoration, budget: &p.guarded}
}

// refuses reports whether the partition accepts no operations now. nonOwner means that the
// operation may be executed in place of the owner.
func (g *guarded) refuses(nonOwner bool) bool {
	return g.ownership != owned && (g.ownership == handingOff || !nonOwner)
}

// refused reports whether the target's partition accepts no operations now, see refuses.
func (t *target) refused(op *twotier.Op) bool {
	return t.p.refuses(op.AllowNonOwner || t.check.InPlace)
}

// failedLoadsDown is how many consecutive loads of a partition must fail before it counts as
// unreadable. A single broken connection is not enough.
const failedLoadsDown = 2

// storeDown reports whether the store is known to be unreachable for the partition's keys. A store
// that is late, or refuses, is not down.
func (g *guarded) storeDown() bool {
	return g.loads.Retry.Failures >= failedLoadsDown || g.health.down.Load()
}

// degraded reports whether answers come from memory alone, because the store did not accept the
// last round or can't be asked.
func (g *guarded) degraded() bool { return g.outbox.Retry.Failures > 0 || g.storeDown() }

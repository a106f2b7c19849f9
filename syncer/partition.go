package syncer

import (
	"iter"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/loans"
)

// ownership is who decides about the keys of a partition. See docs/architecture.md for the
// transitions.
type ownership uint8

const (
	// owned: this counter decides.
	owned ownership = iota
	// handingOff: for a moment nobody decides. This counter did, and is about to hand over its
	// state. It still flushes.
	handingOff
	// sealed: all pending counts have been cut into rounds that are about to be handed off. Nothing
	// in the ledger changes.
	sealed
	// offered: sealed, and another counter has read a page, and may send the rounds.
	offered
	// notOwned: another counter decides. This one may still count in its place (Op.AllowNonOwner),
	// and the counts of both meet in the store.
	notOwned
)

// isSealed reports whether nothing in the ledger changes.
func (o ownership) isSealed() bool { return o == sealed || o == offered }

// isBetween reports whether nobody decides.
func (o ownership) isBetween() bool { return o != owned && o != notOwned }

// phase is how far a counter has come to its end. It only ever grows.
type phase uint8

const (
	_ phase = iota // running: everything is counted
	// draining: nothing more is counted, except confirmed reservations.
	draining
	// closed: nothing more is counted. What is pending is still flushed.
	closed
	// stopped: nothing more is settled.
	stopped
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
	phase  phase
	memory *memory // shared by all partitions
	health *health // the store's
	ledger
	loads loading
	// reachedAtFailure is health.reached at the first of the loads that have failed in a row.
	reachedAtFailure uint64
	reservations     loans.Reservations

	flushing    flushing
	restoration restoration
	handoff     handoff
	// resets is how many callers of ResetKey wait for the reset of a key, by LoadName. ResetKey
	// returns success once its ticket is acknowledged, so the reset must not be given up meanwhile.
	resets map[string]int

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

// locked iterates over the partitions. Each is locked meanwhile.
func (d *directory) locked() iter.Seq[*partition] {
	return func(yield func(*partition) bool) {
		for i := range d.parts {
			if !d.parts[i].yieldLocked(yield) {
				return
			}
		}
	}
}

func (p *partition) yieldLocked(yield func(*partition) bool) (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return yield(p)
}

// partitionOf returns the partition of a check's key.
func (d *directory) partitionOf(check *twotier.Check) *partition {
	return &d.parts[d.placement.Of(check.NS, check.Key)]
}

// refuses reports whether the partition accepts no operations now. nonOwner means that the
// operation may be executed in place of the owner.
func (g *guarded) refuses(nonOwner bool) bool {
	return g.ownership != owned && (!nonOwner || g.ownership.isBetween())
}

const (
	// failedLoadsDown is how many consecutive loads of a partition must fail before it counts as
	// unreadable. A single broken connection is not enough.
	failedLoadsDown = 2
	// failedLoadsAlone is how many must fail if the store answered others since the first failure.
	// Between two short pauses of a busy store, the partition may not have had its turn.
	failedLoadsAlone = 4
)

// storeDown reports whether the store is known to be unreachable for the partition's keys. A store
// that is late, or refuses, is not down.
func (g *guarded) storeDown() bool {
	enough := failedLoadsDown
	if g.health.reached.Load() != g.reachedAtFailure {
		enough = failedLoadsAlone
	}
	return g.loads.Retry.Failures >= enough || g.health.down.Load()
}

// degraded reports whether answers come from memory alone, because the store did not accept the
// last round or can't be asked.
func (g *guarded) degraded() bool { return g.outbox.Retry.Failures > 0 || g.storeDown() }

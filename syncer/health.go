package syncer

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// enoughSilent is how many partitions must have failed, and none got through meanwhile, for the
// store to be known to be down. One that fails says nothing of the others: its data may be broken,
// or its shard gone.
const enoughSilent = 8

// health is what is known of whether the store can be reached at all.
type health struct {
	parts  []partition // all of them
	enough int
	down   atomic.Bool

	mu     sync.Mutex
	silent map[int]bool // partitions that failed since one got through
	probed time.Time    // when others were last asked because of those
}

func (h *health) init(parts []partition) {
	h.parts, h.enough, h.silent = parts, min(enoughSilent, len(parts)), map[int]bool{}
}

// note takes the outcomes of an exchange. It reports whether the store has just come to be known to
// be down, and whether a few others should be asked to find out.
func (h *health) note(rounds []*Round) (fell, ask bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.ContainsFunc(rounds, func(r *Round) bool { return r.Err == nil }) {
		clear(h.silent)
		h.down.Store(false)
		return false, false
	}
	before := len(h.silent)
	for _, r := range rounds {
		if r.Aside || !errors.Is(r.Err, ErrRefused) { // a store that refuses to write may be read
			h.silent[r.Partition] = true
		}
	}
	if len(h.silent) >= h.enough {
		return !h.down.Swap(true), false
	}
	ask = len(h.silent) > before && time.Since(h.probed) > firstBackoff
	if ask {
		h.probed = time.Now()
	}
	return false, ask
}

// noteOutcomes takes the outcomes of an exchange, has the partitions look again for which that
// changes anything, and returns how many of the outcomes are failures.
func (h *health) noteOutcomes(rounds []*Round) (failed int) {
	for _, r := range rounds {
		if r.Err != nil {
			failed++
		}
	}
	fell, ask := h.note(rounds)
	for i := range h.parts {
		if fell {
			h.parts[i].lookAgain() // nobody waits any longer for what can't be had
		}
	}
	if ask {
		for range enoughSilent {
			h.parts[rand.IntN(len(h.parts))].probe()
		}
	}
	return failed
}

// failedLoadsDown is how many loads of a partition in a row must have failed for it to be known
// that it can't be read: a connection that broke says nothing yet.
const failedLoadsDown = 2

// storeDown reports whether it is known that the store can't be asked about the partition's keys.
// Late is not down.
func (g *guarded) storeDown() bool {
	return g.loads.retry.failures >= failedLoadsDown || g.health.down.Load()
}

// degraded reports whether the store did not take what it was last told, or can't be asked: what is
// known is from memory.
func (g *guarded) degraded() bool { return g.outbox.retry.failing() || g.storeDown() }

package syncer

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// enoughSilent is how many partitions must fail, with none getting through meanwhile, before the
// store is known to be down. A single partition that fails says nothing about the others: its data
// may be broken, or its shard gone.
const enoughSilent = 8

// health is what is known about whether the store can be reached at all.
type health struct {
	parts  []partition // all of the counter's
	enough int
	down   atomic.Bool

	mu     sync.Mutex
	silent map[int]bool // partitions that have failed since the last one got through
	probed time.Time    // when other partitions were last asked because of those
}

func (h *health) init(parts []partition) {
	h.parts, h.enough, h.silent = parts, min(enoughSilent, len(parts)), map[int]bool{}
}

// note takes the outcomes of an exchange. fell reports that the store has just become known to be
// down, ask that a few other partitions should be asked to find out.
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

// noteOutcomes takes the outcomes of an exchange, and wakes or probes partitions if the outcomes
// require it. It returns how many of them are failures.
func (h *health) noteOutcomes(rounds []*Round) (failed int) {
	for _, r := range rounds {
		if r.Err != nil {
			failed++
		}
	}
	fell, ask := h.note(rounds)
	if fell {
		for i := range h.parts {
			h.parts[i].wakeWaiters() // nobody should go on waiting for what can't be had
		}
	}
	if ask {
		for range enoughSilent {
			h.parts[rand.IntN(len(h.parts))].probe()
		}
	}
	return failed
}

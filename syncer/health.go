package syncer

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier/syncer/internal/rounds"
	"twotier.dev/twotier/syncer/store"
)

const (
	// enoughSilent is how many partitions must fail, with none getting through meanwhile, before
	// the store counts as down. A single failing partition is no evidence about the others: its
	// data may be broken, or its shard gone.
	enoughSilent = 8
	// silentParts is how many exchange timeouts a store must be silent for, if it does not refuse
	// connections, before it counts as down. A shorter pause only makes it late.
	silentParts = 2
)

// health determines whether the store can be reached at all.
type health struct {
	parts  []partition // all of the counter's
	enough int
	// timeout is the timeout of an exchange.
	timeout time.Duration
	down    atomic.Bool
	reached atomic.Uint64 // exchanges that reached the store

	mu     sync.Mutex
	silent map[int]bool // partitions that have failed since the last success
	since  time.Time    // when the first exchange with one of these failures began
	probed time.Time    // when other partitions were last asked because of those
}

func (h *health) init(parts []partition, timeout time.Duration) {
	h.parts, h.enough, h.silent = parts, min(enoughSilent, len(parts)), map[int]bool{}
	h.timeout = timeout
}

// reachedStore reports whether a round shows that the store can be reached, regardless of the
// answer.
func reachedStore(r *rounds.Round) bool {
	return r.Err == nil || errors.Is(r.Err, store.ErrLate) || errors.Is(r.Err, store.ErrRefused)
}

// record records the outcomes of an exchange that began at a time. fell reports that the store has
// just been found to be down. ask reports that the caller should probe a few other partitions to
// find out.
func (h *health) record(sent []*rounds.Round, began time.Time) (fell, ask bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.ContainsFunc(sent, reachedStore) {
		clear(h.silent)
		h.down.Store(false)
		h.reached.Add(1)
		return false, false
	}
	before := len(h.silent)
	if before == 0 {
		h.since = began
	}
	for _, r := range sent {
		h.silent[r.Partition] = true
	}
	now := time.Now()
	timedOut := now.Sub(began) >= h.timeout
	if len(h.silent) >= h.enough && (!timedOut || now.Sub(h.since) >= silentParts*h.timeout) {
		return !h.down.Swap(true), false
	}
	if ask = len(h.silent) > before && now.Sub(h.probed) > rounds.FirstBackoff; ask {
		h.probed = now
	}
	return false, ask
}

// recordOutcomes records the outcomes of an exchange that began at a time, and wakes or probes
// partitions if necessary. It returns the number of failures.
func (h *health) recordOutcomes(sent []*rounds.Round, began time.Time) (failed int) {
	for _, r := range sent {
		if r.Err != nil {
			failed++
		}
	}
	fell, ask := h.record(sent, began)
	if fell {
		for i := range h.parts {
			h.parts[i].wakeWaiters() // nobody should go on waiting for a store that is down
		}
	}
	if ask {
		first := rand.IntN(len(h.parts))
		for i := range h.enough { // all different, or too few could fail
			h.parts[(first+i)%len(h.parts)].probe()
		}
	}
	return failed
}

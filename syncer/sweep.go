package syncer

import (
	"context"
	"math"
	"time"

	"twotier.dev/twotier/syncer/internal/keys"
)

const (
	// A sweep takes one step per partition, with a pause before each, and at least leastSweep in
	// all: it only affects keys older than the finest level's span.
	sweepPause = 50 * time.Millisecond
	leastSweep = 2 * time.Second
	// sweepSlots is how many slots are looked at under one hold of a partition's lock.
	sweepSlots = 512
)

// runSweep goes round the partitions and drops counts that have left every window.
func (m *memory) runSweep(ctx context.Context) {
	ticker := time.NewTicker(max(sweepPause, leastSweep/time.Duration(len(m.parts))))
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-m.tight:
			m.reclaim()
			i--
		case <-ticker.C:
			m.reclaim()
			p := &m.parts[i%len(m.parts)]
			m.evacuate(p, keys.NeverIdle, math.MaxInt) // move what could not be moved before
			for at := 0; m.sweep(p, at); at += sweepSlots {
			}
			p.mu.Lock()
			p.rebuild()
			p.mu.Unlock()
		}
	}
}

// sweep checks one run of slots. It reports whether there are more.
func (m *memory) sweep(p *partition, at int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pinned() {
		return false
	}
	return p.keys.Sweep(at, sweepSlots)
}

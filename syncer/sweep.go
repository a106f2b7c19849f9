package syncer

import (
	"context"
	"math"
	"time"

	"twotier.dev/twotier/leaparray"
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
			m.evacuate(p, neverIdle, math.MaxInt) // move what could not be moved before
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
	now := m.clock.now()
	sec := m.clock.seconds(now)
	for i := at; i < min(at+sweepSlots, p.keys.table.Slots()); i++ {
		r := p.keys.table.At(i)
		if r == 0 {
			continue
		}
		e := p.keys.entry(r)
		sp := m.spaces[e.space()]
		if int64(e.idle(sec))*1000 <= sp.ladder.FineSpan() || e.has(flagBusy) {
			continue
		}
		p.keys.forgetExpired(e, sp.ladder, now)
		if evictable(e) && e.synced() == 0 {
			p.keys.drop(p.keys.table.HashAt(i), r)
			i-- // another slot may have moved here
		}
	}
	return at+sweepSlots < p.keys.table.Slots()
}

// forgetExpired drops the counts of an idle entry once all of them have left every window that ends
// as long ago as an event may be.
func (s *keyspace) forgetExpired(e entry, l *leaparray.Ladder, now int64) {
	oldest := l.Since(now) - l.Coarsest()
	last := max(l.Latest(s.synced(e)), l.Latest(s.pending(e)))
	if e.hasPending() && !e.has(flagBusy) && last < oldest {
		s.expired += max(0, l.Total(s.pending(e)))
		s.clearPending(e, l)
	}
	if e.synced() != 0 && last < oldest && evictable(e) {
		s.dropSynced(e)
	}
}

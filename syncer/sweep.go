package syncer

import (
	"context"
	"time"

	"twotier/leaparray"
)

const (
	// sweepEvery is the pause between two steps of the sweep; a whole sweep takes one step for each partition.
	sweepEvery = 50 * time.Millisecond
	// sweepSlots is how many slots are looked at under one hold of a partition's lock.
	sweepSlots = 512
)

// runSweep goes round the partitions and drops what no window can see any more.
func (c *Counter) runSweep(ctx context.Context) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			p := &c.parts[i%len(c.parts)]
			for at := 0; c.sweep(p, at); at += sweepSlots {
			}
			p.mu.Lock()
			p.rebuild()
			p.mu.Unlock()
		}
	}
}

// sweep looks at one run of slots and reports whether there are more.
func (c *Counter) sweep(p *partition, at int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.republish != nil {
		return false
	}
	now := c.opt.Now()
	sec := c.seconds(now)
	for i := at; i < min(at+sweepSlots, len(p.table.slots)); i++ {
		s := p.table.slots[i]
		if s == 0 {
			continue
		}
		r := ref(s >> 32)
		e := p.arena.entry(r)
		sp := c.spaces[e.space()]
		if int64((sec-e.used())&low24)*1000 <= sp.ladder.FineSpan() || e.has(flagBusy) {
			continue
		}
		c.forgetExpired(p, e, sp.ladder, now)
		if evictable(e) && e.synced() == 0 {
			p.drop(uint32(s), r)
			i-- // another slot may have moved here
		}
	}
	return at+sweepSlots < len(p.table.slots)
}

// forgetExpired drops the buckets of an idle entry that have left every window that ends now, unflushed ones included,
// and gives back what memory that frees. The newest bucket of a level stays as long as anything of the entry does: without
// it the level could not tell that it has lost older ones, and a late window would read it as empty.
func (c *Counter) forgetExpired(p *partition, e entry, l *leaparray.Ladder, now int64) {
	s := l.Stamp(now)
	coarsest := l.Len() - 1
	var heads leaparray.Stamp
	for level := range l.Len() {
		heads[level] = l.Head(p.pendingOf(e), level)
	}
	stays := heads[coarsest] >= s[coarsest]-l.Keep(coarsest)
	lives := func(level int, idx int64) bool { return idx >= s[level]-l.Keep(level) || stays && idx == heads[level] }
	if e.hasPending() {
		gone := int64(0)
		l.Each(p.pendingOf(e), func(level int, idx, _ int64) bool {
			if !lives(level, idx) {
				gone++
			}
			return true
		})
		if gone > 0 && !e.has(flagBusy) {
			to := p.compact(l, p.pendingOf(e), lives)
			p.dropPending(e)
			e.setPending(to)
			p.pendingBuckets -= gone
			p.expired += gone
		}
	}
	if e.synced() == 0 || e.hasPending() {
		return
	}
	if l.Head(p.syncedOf(e), coarsest) < s[coarsest]-l.Keep(coarsest) {
		p.arena.releaseCounter(e.synced())
		e.setSynced(0)
	}
}

// compact copies a counter into the smallest block and returns where that is.
func (p *partition) compact(l *leaparray.Ladder, c leaparray.Counter, keep func(level int, idx int64) bool) ref {
	to := counterAlloc{a: &p.arena}
	l.Compact(c, &to, keep)
	return to.ref
}

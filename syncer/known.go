package syncer

import "twotier/leaparray"

// Unflushed calls fn for every key with counts that the store has not acknowledged: what would be lost if the process ended now. n
// is their sum, as the coarsest level has it; ns is empty for the default namespace. No name may be kept.
func (c *Counter) Unflushed(fn func(ns, key []byte, n int64)) {
	for i := range c.parts {
		c.parts[i].eachSum(c, (*partition).pendingOf, fn)
	}
}

// Synced is Unflushed of what the store was known to hold when it was last heard of, of partitions that this counter decides about: what can be
// restored if the store loses everything.
func (c *Counter) Synced(fn func(ns, key []byte, n int64)) {
	for i := range c.parts {
		c.parts[i].eachSum(c, func(p *partition, e entry) leaparray.Counter {
			if e.synced() == 0 || p.mode == modeForeign {
				return nil
			}
			return p.syncedOf(e)
		}, fn)
	}
}

// eachSum calls fn for every key of which the counter is not empty, with the sum of its coarsest level.
func (p *partition) eachSum(c *Counter, of func(*partition, entry) leaparray.Counter, fn func(ns, key []byte, n int64)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.table.Slots() {
		at := p.table.At(i)
		if at == 0 {
			continue
		}
		e := p.entry(at)
		counter := of(p, e)
		if counter == nil {
			continue
		}
		l, sum := c.spaces[e.space()].ladder, int64(0)
		l.Each(counter, func(level int, _, n int64) bool {
			if level == l.Len()-1 {
				sum += n
			}
			return true
		})
		if sum != 0 {
			ns, key := e.name()
			fn(ns, key, sum)
		}
	}
}

package syncer

import (
	"slices"
	"twotier/internal/arena"
)

const (
	// ageSample is how many entries tell which age is the median of a partition.
	ageSample = 64
	// sparedFor is how many seconds a partition is left alone that had nothing to give.
	sparedFor = 5
	// neverIdle is an age that no entry has.
	neverIdle = low24 + 1
)

// askForRoom tells the sweep that the reserve is being used.
func (c *Counter) askForRoom() {
	select {
	case c.tight <- struct{}{}:
	default:
	}
}

// reclaim makes the largest partition give up what lies above its share, or as much as small partitions have taken of the
// reserve: an operation that needs room never waits for the lock of another partition.
func (c *Counter) reclaim() {
	need := c.pool.ReserveUsed()
	if need <= 0 {
		return
	}
	sec := c.seconds(c.opt.Now())
	p, above := c.largest(sec)
	if p == nil {
		return
	}
	p.mu.Lock()
	before := p.arena.Total()
	age := p.medianAge(sec)
	if !p.keepsAll() {
		p.arena.Evacuate(2 * min(need, above)) // about half of it is moved elsewhere
	}
	p.mu.Unlock()
	c.vacate(p, age)
	p.mu.Lock()
	p.table.Shrink()
	if p.arena.Total() >= before {
		p.sparedUntil = sec + sparedFor
	}
	p.mu.Unlock()
}

// largest returns the largest partition above its share that may have something to give, and by how many words it is above.
func (c *Counter) largest(sec uint32) (most *partition, above int) {
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		if size := p.size() - c.share; size > above && sec >= p.sparedUntil {
			most, above = p, size
		}
		p.mu.Unlock()
	}
	return most, above
}

// medianAge is how long ago half of the entries were used, in seconds, by a sample. The partition is locked.
func (p *partition) medianAge(sec uint32) uint32 {
	ages := make([]uint32, 0, ageSample)
	for range min(p.table.Slots(), 4*ageSample) {
		p.hand = (p.hand + 1) % p.table.Slots()
		if at := p.table.At(p.hand); at != 0 {
			ages = append(ages, p.entry(at).idle(sec))
		}
	}
	if len(ages) == 0 {
		return neverIdle
	}
	slices.Sort(ages)
	return max(2, ages[len(ages)/2]) // what was used in the last second stays, see evictOne
}

// vacate goes through all entries and takes them out of the chunks that are to be given back: those that were idle for this long are
// evicted.
func (c *Counter) vacate(p *partition, age uint32) {
	for at := 0; c.vacateSome(p, at, age); at += sweepSlots {
	}
}

// vacateSome looks at one run of slots and reports whether there are more.
func (c *Counter) vacateSome(p *partition, at int, age uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keepsAll() || p.arena.Evacuating() == 0 {
		return false
	}
	sec := c.seconds(c.opt.Now())
	for i := at; i < min(at+sweepSlots, p.table.Slots()); i++ {
		r := p.table.At(i)
		if r == 0 {
			continue
		}
		e := p.entry(r)
		if !p.arena.MustMove(r) && !p.arena.MustMove(e.synced()) && !p.arena.MustMove(e.pending()) {
			continue
		}
		if e.idle(sec) >= age && evictable(e) && !e.has(flagLimit) {
			p.drop(p.table.HashAt(i), r)
			p.evictions++
			i-- // another slot may have moved here
			continue
		}
		p.moveOut(i, r, e)
	}
	return at+sweepSlots < p.table.Slots()
}

// moveOut moves what belongs to an entry to other chunks, and the entry itself unless others know where it is.
func (p *partition) moveOut(slot int, r arena.Ref, e entry) {
	e.setSynced(evacuateCounter(&p.arena, e.synced()))
	e.setPending(evacuateCounter(&p.arena, e.pending()))
	if !p.arena.MustMove(r) || e.has(flagDirty|flagBusy|flagParked|flagShared) {
		return
	}
	to := p.arena.Alloc(len(e))
	copy(p.arena.Words(to, len(e)), e)
	p.table.Replace(slot, to)
	p.arena.Release(r, len(e))
}

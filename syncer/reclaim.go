package syncer

import (
	"cmp"
	"slices"
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
	need := c.pool.excess()
	if need <= 0 {
		return
	}
	sec := c.seconds(c.opt.Now())
	p, above := c.largest(sec)
	if p == nil {
		return
	}
	p.mu.Lock()
	before := p.arena.total
	age := p.medianAge(sec)
	if !p.keepsAll() {
		p.arena.vacate(2 * min(need, above)) // about half of it is moved elsewhere
	}
	p.mu.Unlock()
	c.vacate(p, age)
	p.mu.Lock()
	p.table.shrink()
	if p.arena.total >= before {
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
	for range min(len(p.table.slots), 4*ageSample) {
		p.hand = (p.hand + 1) % len(p.table.slots)
		if s := p.table.slots[p.hand]; s != 0 {
			ages = append(ages, p.arena.entry(ref(s>>32)).idle(sec))
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
	if p.keepsAll() || p.arena.vacated == 0 {
		return false
	}
	sec := c.seconds(c.opt.Now())
	for i := at; i < min(at+sweepSlots, len(p.table.slots)); i++ {
		s := p.table.slots[i]
		if s == 0 {
			continue
		}
		r := ref(s >> 32)
		e := p.arena.entry(r)
		if !p.arena.vacates(r) && !p.arena.vacates(e.synced()) && !p.arena.vacates(e.pending()) {
			continue
		}
		if e.idle(sec) >= age && evictable(e) && !e.has(flagLimit) {
			p.drop(uint32(s), r)
			p.evictions++
			i-- // another slot may have moved here
			continue
		}
		p.moveOut(i, r, e)
	}
	return at+sweepSlots < len(p.table.slots)
}

// moveOut moves what belongs to an entry to other chunks, and the entry itself unless others know where it is.
func (p *partition) moveOut(slot int, r ref, e entry) {
	e.setSynced(p.arena.movedOut(e.synced()))
	e.setPending(p.arena.movedOut(e.pending()))
	if !p.arena.vacates(r) || e.has(flagDirty|flagBusy|flagParked|flagShared) {
		return
	}
	to := p.arena.alloc(len(e))
	copy(p.arena.words(to, len(e)), e)
	p.table.slots[slot] = slotOf(uint32(p.table.slots[slot]), to)
	p.arena.release(r, len(e))
}

// movedOut moves a counter's block if its chunk is to be given back, and returns where it is.
func (a *arena) movedOut(r ref) ref {
	if !a.vacates(r) {
		return r
	}
	to := a.copyCounter(a, r)
	a.releaseCounter(r)
	return to
}

// vacates reports whether the chunk of a block is to be given back. There is none at 0.
func (a *arena) vacates(r ref) bool { return r != 0 && a.chunks[r>>chunkBits].vacate }

// vacate chooses chunks of so many words, those with the fewest in use, to be given back when the last block has left them. Nothing is
// put into them any more.
func (a *arena) vacate(words int) {
	var some []int
	for i := range a.chunks {
		if c := &a.chunks[i]; len(c.words) > 0 && len(c.words) <= chunkWords && !c.vacate && i != a.last {
			some = append(some, i)
		}
	}
	slices.SortFunc(some, func(i, j int) int { return cmp.Compare(a.chunks[i].used, a.chunks[j].used) })
	for n, i := range some {
		if a.vacated >= words {
			some = some[:n]
			break
		}
		a.chunks[i].vacate = true
		a.vacated += len(a.chunks[i].words)
	}
	a.forgetFree()
	for _, i := range some {
		if c := &a.chunks[i]; c.used == 0 {
			a.giveChunk(i)
		}
	}
}

// forgetFree takes the free blocks of chunks that are to be given back off the lists.
func (a *arena) forgetFree() {
	for n, r := range a.free {
		a.free[n] = 0
		a.have &^= 1 << n
		for r != 0 {
			next := ref(a.words(r, 1)[0])
			if !a.vacates(r) {
				a.put(r, n)
			}
			r = next
		}
	}
	for i := range a.large {
		a.large[i].blocks = slices.DeleteFunc(a.large[i].blocks, a.vacates)
	}
}

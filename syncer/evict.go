package syncer

import "cmp"

// sampleSize is how many entries compete for being evicted: the one that was used the longest ago loses, as in Redis's
// approximation of LRU.
const sampleSize = 8

// maxEvictions bounds what a new key may push out: more than one only where blocks differ in size.
const maxEvictions = 32

func (p *partition) size() int  { return p.arena.total + len(p.table.slots) }
func (p *partition) bytes() int { return 8 * p.size() }

// room reports whether a block of this many words may be taken for a new key, after evicting others if memory is used up. A
// partition below its share need not evict: the largest one is made to give something up.
func (c *Counter) room(p *partition, words int, sec uint32) bool {
	full := p.arena.full()
	if !full && !c.pool.tight() {
		return true
	}
	small := !full && p.size() < c.share
	if small {
		c.askForRoom()
		if c.pool.allows(true) {
			return true
		}
	}
	return p.makeRoom(words, sec) || !full && c.pool.allows(false)
}

// makeRoom evicts until there is a free block of so many words.
func (p *partition) makeRoom(words int, sec uint32) bool {
	// Even if there is one already: the key's counters will need what an evicted key's counters leave.
	for range maxEvictions {
		if !p.evictOne(sec, anySpace) {
			return false
		}
		if p.arena.fits(words) {
			return true
		}
	}
	return false
}

const (
	// anySpace is the namespace of any key.
	anySpace = -1
	// limitAge is the least age, in seconds, at which an entry may be evicted that is at a limit.
	limitAge = 60
)

// evictOne drops the least recently used of a few clean entries that nobody used in the last
// second, of one namespace or of any: one that is at a limit only if no other is found, and nobody
// has used it for longer. What it knew can be read back from the store.
func (p *partition) evictOne(sec uint32, space int) bool {
	if p.keepsAll() {
		return false
	}
	var victim, last uint64
	var oldest uint32
	seen := 0
	for range min(len(p.table.slots), 16*sampleSize) {
		p.hand = (p.hand + 1) % len(p.table.slots)
		s := p.table.slots[p.hand]
		if s == 0 {
			continue
		}
		e := p.arena.entry(ref(s >> 32))
		switch idle := e.idle(sec); {
		case idle < evictableAge || !evictable(e) || space != anySpace && e.space() != space:
		case e.has(flagLimit):
			if idle >= limitAge {
				last = s
			}
		case idle > oldest:
			victim, oldest = s, idle
		}
		if seen++; seen >= sampleSize && victim != 0 {
			break
		}
	}
	if victim = cmp.Or(victim, last); victim == 0 {
		return false
	}
	p.drop(uint32(victim), ref(victim>>32))
	p.evictions++
	return true
}

// keepsAll reports whether nothing may be evicted or moved now: somebody goes through the entries, or may need what they know.
func (p *partition) keepsAll() bool {
	return p.republish != nil || p.sealed != nil || p.flight != nil && p.failing
}

// evictable reports whether an entry holds nothing that the store doesn't.
func evictable(e entry) bool {
	return !e.has(flagDirty|flagBusy|flagReset|flagParked|flagShared) && !e.hasPending()
}

// rebuild moves all entries into a new arena if more than half of the old one is unused, and shrinks the table to fit. It
// must not run while a round refers to entries.
func (p *partition) rebuild() {
	if p.flight != nil || p.republish != nil || p.sealed != nil || p.arena.unused <= max(p.arena.total/2, chunkWords/2) {
		return
	}
	moved := make(map[ref]ref, p.table.used)
	old := p.arena
	p.arena = old.anew()
	oldTable := p.table
	p.table = table{pool: oldTable.pool}
	for _, s := range oldTable.slots {
		if s == 0 {
			continue
		}
		r := ref(s >> 32)
		e := old.entry(r)
		to := p.arena.alloc(len(e))
		n := entry(p.arena.words(to, len(e)))
		copy(n, e)
		n.setSynced(p.arena.copyCounter(&old, e.synced()))
		n.setPending(p.arena.copyCounter(&old, e.pending()))
		p.table.insert(uint32(s), to)
		moved[r] = to
	}
	for i, r := range p.dirty {
		p.dirty[i] = moved[r]
	}
	for i, r := range p.parked {
		p.parked[i] = moved[r]
	}
	old.drop()
	oldTable.drop()
}

func (a *arena) copyCounter(from *arena, r ref) ref {
	if r == 0 {
		return 0
	}
	c := from.counter(r)
	to := a.alloc(len(c))
	copy(a.words(to, len(c)), c)
	return to
}

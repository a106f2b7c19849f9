package syncer

import "twotier/internal/arena"

// sampleSize is how many entries compete for being evicted: the one that was used the longest ago loses, as in Redis's
// approximation of LRU.
const sampleSize = 8

// maxEvictions bounds what a new key may push out: more than one only where blocks differ in size.
const maxEvictions = 32

func (p *partition) size() int  { return p.arena.Total() + p.table.Slots() }
func (p *partition) bytes() int { return 8 * p.size() }

// room reports whether a block of this many words may be taken for a new key, after evicting others if memory is used up. A
// partition below its share need not evict: the largest one is made to give something up.
func (c *Counter) room(p *partition, words int, sec uint32) bool {
	full := p.arena.Full()
	if !full && c.pool.Fits(arena.ChunkWords) {
		return true
	}
	small := !full && p.size() < c.share
	if small {
		c.askForRoom()
		if c.pool.FitsReserve(arena.MinChunkWords) {
			return true
		}
	}
	return p.makeRoom(words, sec) || !full && c.pool.Fits(arena.MinChunkWords)
}

// makeRoom evicts until there is a free block of so many words.
func (p *partition) makeRoom(words int, sec uint32) bool {
	// Even if there is one already: the key's counters will need what an evicted key's counters leave.
	for range maxEvictions {
		if !p.evictOne(sec, anySpace) {
			return false
		}
		if p.arena.Fits(words) {
			return true
		}
	}
	return false
}

const (
	// noSlot is the slot of no entry.
	noSlot = -1
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
	victim, last := noSlot, noSlot
	var oldest uint32
	seen := 0
	for range min(p.table.Slots(), 16*sampleSize) {
		p.hand = (p.hand + 1) % p.table.Slots()
		at := p.table.At(p.hand)
		if at == 0 {
			continue
		}
		e := p.entry(at)
		switch idle := e.idle(sec); {
		case idle < evictableAge || !evictable(e) || space != anySpace && e.space() != space:
		case e.has(flagLimit):
			if idle >= limitAge {
				last = p.hand
			}
		case idle > oldest:
			victim, oldest = p.hand, idle
		}
		if seen++; seen >= sampleSize && victim != noSlot {
			break
		}
	}
	if victim == noSlot {
		victim = last
	}
	if victim == noSlot {
		return false
	}
	p.drop(p.table.HashAt(victim), p.table.At(victim))
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
	if p.flight != nil || p.republish != nil || p.sealed != nil || !p.arena.Sparse() {
		return
	}
	moved := make(map[arena.Ref]arena.Ref, p.table.Len())
	old, oldTable := p.arena, p.table
	p.arena, p.table = old.Empty(), oldTable.Empty()
	for i := range oldTable.Slots() {
		at := oldTable.At(i)
		if at == 0 {
			continue
		}
		e := entryAt(&old, at)
		to := p.arena.Alloc(len(e))
		n := entry(p.arena.Words(to, len(e)))
		copy(n, e)
		n.setSynced(copyCounter(&p.arena, &old, e.synced()))
		n.setPending(copyCounter(&p.arena, &old, e.pending()))
		p.table.Insert(oldTable.HashAt(i), to)
		moved[at] = to
	}
	for i, r := range p.dirty {
		p.dirty[i] = moved[r]
	}
	for i, r := range p.parked {
		p.parked[i] = moved[r]
	}
	old.Drop()
	oldTable.Drop()
}

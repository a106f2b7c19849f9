package syncer

// sampleSize is how many entries compete for an eviction. The least recently used one goes, as in
// Redis's approximation of LRU.
const sampleSize = 8

// maxEvictions bounds how many entries one new key may push out. More than one is needed only if
// blocks differ in size.
const maxEvictions = 32

// makeRoom evicts entries until there is a free block of this many words. If no entry can be
// evicted, a free block is enough only while memory is within its budget.
func (g *guarded) makeRoom(words int, sec uint32) bool {
	// Evict at least one entry, if there is any, even if there is a free block already: the new
	// key's counters need the blocks of an evicted key's counters. Without an eviction they take
	// new chunks, so each round that frees the pending buckets of some keys would admit as many
	// new ones, and memory would grow for as long as no key is idle.
	for range maxEvictions {
		if !g.evictOne(sec, anySpace) {
			return g.keys.arena.Fits(words) && g.memory.pool.FitsReserve(0)
		}
		if g.keys.arena.Fits(words) {
			return true
		}
	}
	return false
}

const (
	// noSlot means no slot.
	noSlot = -1
	// anySpace means any namespace.
	anySpace = -1
	// limitAge is how long, in seconds, an entry at a limit must be idle before it may be evicted.
	limitAge = 60
)

// evictOne is keyspace.evictOne, but evicts nothing while keepsAll is true.
func (g *guarded) evictOne(sec uint32, space int) bool {
	return !g.keepsAll() && g.keys.evictOne(sec, space)
}

// pinned reports whether a restoration or a handoff is going through the entries. None may be
// dropped or moved meanwhile.
func (g *guarded) pinned() bool { return g.restoration.active() || g.sealed }

// keepsAll reports whether no entry may be evicted or moved now: a restoration or a handoff is
// going through them, or a round has failed, and a restoration may need their counts.
func (g *guarded) keepsAll() bool {
	return g.pinned() || g.outbox.flight != nil && g.outbox.retry.failing()
}

// rebuild is ledger.rebuild, but moves nothing while the partition is pinned.
func (g *guarded) rebuild() {
	if !g.pinned() {
		g.ledger.rebuild()
	}
}

// evictable reports whether the store has all counts of an entry.
func evictable(e entry) bool {
	return !e.has(flagDirty|flagBusy|flagReset|flagParked|flagShared) && !e.hasPending()
}

// evictOne samples a few clean entries, of one namespace or of any, that were not used in the last
// second, and drops the least recently used. An entry at a limit is dropped only if there is no
// other and it has been idle for limitAge. The counts of a dropped entry can be read back from the
// store.
func (s *keyspace) evictOne(sec uint32, space int) bool {
	victim, last := noSlot, noSlot
	var oldest uint32
	seen := 0
	for range min(s.table.Slots(), 16*sampleSize) {
		s.evictSlot = (s.evictSlot + 1) % s.table.Slots()
		at := s.table.At(s.evictSlot)
		if at == 0 {
			continue
		}
		e := s.entry(at)
		switch idle := e.idle(sec); {
		case idle < evictableAge || !evictable(e) || space != anySpace && e.space() != space:
		case e.has(flagLimit):
			if idle >= limitAge {
				last = s.evictSlot
			}
		case idle > oldest:
			victim, oldest = s.evictSlot, idle
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
	s.drop(s.table.HashAt(victim), s.table.At(victim))
	s.evicted++
	return true
}

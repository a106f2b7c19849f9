package syncer

// sampleSize is how many entries compete for being evicted: the one that was used the longest ago
// loses, as in Redis's approximation of LRU.
const sampleSize = 8

// maxEvictions bounds what a new key may push out: more than one only where blocks differ in size.
const maxEvictions = 32

// makeRoom evicts until there is a free block of so many words.
func (g *guarded) makeRoom(words int, sec uint32) bool {
	// Even if there is one already: the key's counters will need what an evicted key's counters
	// leave.
	for range maxEvictions {
		if !g.evictOne(sec, anySpace) {
			return false
		}
		if g.keys.arena.Fits(words) {
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

// evictOne is keyspace.evictOne, unless nothing may be evicted now.
func (g *guarded) evictOne(sec uint32, space int) bool {
	return !g.keepsAll() && g.keys.evictOne(sec, space)
}

// pinned reports whether somebody goes through the entries: none may be dropped or moved meanwhile.
func (g *guarded) pinned() bool { return g.restoration.active() || g.sealed }

// keepsAll reports whether nothing may be evicted or moved now: somebody goes through the entries,
// or may need what they know.
func (g *guarded) keepsAll() bool {
	return g.pinned() || g.outbox.flight != nil && g.outbox.retry.failing()
}

// rebuild is ledger.rebuild, unless nothing may be moved now.
func (g *guarded) rebuild() {
	if !g.pinned() {
		g.ledger.rebuild()
	}
}

// evictable reports whether an entry holds nothing that the store doesn't.
func evictable(e entry) bool {
	return !e.has(flagDirty|flagBusy|flagReset|flagParked|flagShared) && !e.hasPending()
}

// evictOne drops the least recently used of a few clean entries that nobody used in the last
// second, of one namespace or of any: one that is at a limit only if no other is found, and nobody
// has used it for longer. What it knew can be read back from the store.
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

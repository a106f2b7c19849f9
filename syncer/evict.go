package syncer

// sampleSize is how many entries compete for being evicted: the one that was used the longest ago
// loses, as in Redis's approximation of LRU.
const sampleSize = 8

// maxEvictions bounds what a new key may push out: more than one only where blocks differ in size.
const maxEvictions = 32

// makeRoom evicts until there is a free block of so many words.
func (p *partition) makeRoom(words int, sec uint32) bool {
	// Even if there is one already: the key's counters will need what an evicted key's counters
	// leave.
	for range maxEvictions {
		if !p.evictOne(sec, anySpace) {
			return false
		}
		if p.keys.arena.Fits(words) {
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
func (p *partition) evictOne(sec uint32, space int) bool {
	return !p.keepsAll() && p.keys.evictOne(sec, space)
}

// keepsAll reports whether nothing may be evicted or moved now: somebody goes through the entries,
// or may need what they know.
func (p *partition) keepsAll() bool {
	return p.republish != nil || p.handoff != nil || p.outbox.flight != nil && p.retry.failing()
}

// evictable reports whether an entry holds nothing that the store doesn't.
func evictable(e entry) bool {
	return !e.has(flagDirty|flagBusy|flagReset|flagParked|flagShared) && !e.hasPending()
}

// rebuild moves all entries into a new arena if most of the old one is unused. It must not run
// while a round refers to entries.
func (p *partition) rebuild() {
	if p.outbox.flight != nil || p.republish != nil || p.handoff != nil || !p.keys.arena.Sparse() {
		return
	}
	moved := p.keys.compact()
	p.dirty.move(moved)
	p.parked.move(moved)
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

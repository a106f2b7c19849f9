package syncer

import "twotier.dev/twotier/syncer/internal/keys"

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
		if !g.evictOne(sec, keys.AnySpace) {
			return g.keys.Fits(words) && g.memory.pool.FitsReserve(0)
		}
		if g.keys.Fits(words) {
			return true
		}
	}
	return false
}

// evictOne is [keys.Keyspace.EvictOne], but evicts nothing while keepsAll is true.
func (g *guarded) evictOne(sec uint32, space int) bool {
	return !g.keepsAll() && g.keys.EvictOne(sec, space)
}

// pinned reports whether a restoration or a handoff is going through the entries. None may be
// dropped or moved meanwhile.
func (g *guarded) pinned() bool { return g.restoration.active() || g.sealed }

// keepsAll reports whether no entry may be evicted or moved now: a restoration or a handoff is
// going through them, or a round has failed, and a restoration may need their counts.
func (g *guarded) keepsAll() bool {
	return g.pinned() || g.outbox.Flight != nil && g.outbox.Retry.Failing()
}

// rebuild is ledger.rebuild, but moves nothing while the partition is pinned.
func (g *guarded) rebuild() {
	if !g.pinned() {
		g.ledger.rebuild()
	}
}

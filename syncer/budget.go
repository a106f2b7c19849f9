package syncer

import (
	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/syncer/internal/keys"
)

// budget lets the parts of a partition ask whether memory may hold more. Its methods are called
// with the partition locked, and may evict other entries of the partition to make room.
type budget interface {
	// admitKey returns why a new key of a namespace can't be kept in memory, or nil if it can.
	// words is the size of its entry; sec is the present.
	admitKey(space, words int, sec uint32) error
	// roomFor reports whether a block of this many words may be allocated for a new key.
	roomFor(words int, sec uint32) bool
	// easeSynced makes room, if memory is used up, for the synced counts of one more key. They are
	// kept in memory in any case.
	easeSynced(sec uint32)
}

// A partition is the budget of its own parts.
var _ budget = (*guarded)(nil)

func (g *guarded) admitKey(space, words int, sec uint32) error {
	return g.memory.admitKey(g, space, words, sec)
}

func (g *guarded) roomFor(words int, sec uint32) bool { return g.memory.roomFor(g, words, sec) }

func (g *guarded) easeSynced(sec uint32) {
	if !g.memory.pool.Fits(arena.MinChunkWords) && !g.memory.lends(g) {
		g.evictOne(sec, keys.AnySpace)
	}
}

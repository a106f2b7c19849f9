package syncer

import "twotier.dev/twotier/internal/arena"

// budget is what the parts of a partition ask whether memory may hold more. The partition is
// locked; to make room, others of its entries may be evicted.
type budget interface {
	// admitKey returns why a new key of a namespace, whose entry takes so many words, can't be
	// kept in memory; nil if it can. sec is the present.
	admitKey(space, words int, sec uint32) error
	// roomFor reports whether a block of this many words may be taken for a new key.
	roomFor(words int, sec uint32) bool
	// easeSynced makes room, if memory is used up, for what the store holds of one more key. That
	// is kept in any case.
	easeSynced(sec uint32)
}

// guarded is the budget of its parts.
var _ budget = (*guarded)(nil)

func (g *guarded) admitKey(space, words int, sec uint32) error {
	return g.memory.admitKey(g, space, words, sec)
}

func (g *guarded) roomFor(words int, sec uint32) bool { return g.memory.roomFor(g, words, sec) }

func (g *guarded) easeSynced(sec uint32) {
	if !g.memory.pool.Fits(arena.MinChunkWords) {
		g.evictOne(sec, anySpace)
	}
}

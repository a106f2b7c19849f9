package syncer

import (
	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/leaparray"
)

// counterAlloc adapts an arena to leaparray.Allocator. It remembers where the last block is.
type counterAlloc struct {
	arena *arena.Arena
	at    arena.Ref
}

// Alloc implements leaparray.Allocator. The upper half of the first word holds the block's size,
// which is needed to release it.
func (c *counterAlloc) Alloc(words int) leaparray.Counter {
	c.at = c.arena.Alloc(words)
	b := c.arena.Words(c.at, words)
	b[0] = uint64(words) << 32
	return leaparray.Counter(b)
}

// counterAt returns the counter at r, nil for 0.
func counterAt(a *arena.Arena, r arena.Ref) leaparray.Counter {
	if r == 0 {
		return nil
	}
	b := a.Tail(r)
	n := int(b[0] >> 32)
	return leaparray.Counter(b[:n:n])
}

func releaseCounter(a *arena.Arena, r arena.Ref) {
	if r != 0 {
		a.Release(r, int(a.Tail(r)[0]>>32))
	}
}

// copyCounter copies a counter to an arena, which may be the one it is in.
func copyCounter(to, from *arena.Arena, r arena.Ref) arena.Ref {
	if r == 0 {
		return 0
	}
	c := counterAt(from, r)
	at := to.Alloc(len(c))
	copy(to.Words(at, len(c)), c)
	return at
}

// evacuateCounter moves a counter out of a chunk that is about to be released, and returns where
// the counter is now.
func evacuateCounter(a *arena.Arena, r arena.Ref) arena.Ref {
	if !a.MustMove(r) {
		return r
	}
	to := copyCounter(a, a, r)
	releaseCounter(a, r)
	return to
}

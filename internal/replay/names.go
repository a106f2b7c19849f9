package replay

import (
	"hash/maphash"
	"time"
)

// Bounds of the memory for names: one mebibyte for each of two generations. With maxNames in a
// generation, one new name in some hundreds is taken for a known one.
const (
	nameBits    = 1 << 23
	nameProbes  = 4
	maxNames    = 600_000
	bitsPerWord = 64
)

// names remembers each name for at least one generation. It is a Bloom filter, so it may take a new
// name for a known one, but never a known one for new. The hash has a random seed, so nobody can
// choose names that collide.
type names[K comparable] struct {
	keep     time.Duration // how long a generation is
	seed     maphash.Seed
	now, old []uint64
	count    int
	since    time.Time
}

// add remembers a name. isNew reports whether the name is certainly new, room whether there is room
// for it. Without room, nothing is remembered.
func (n *names[K]) add(name K, now time.Time) (isNew, room bool) {
	if n.now == nil || now.Sub(n.since) >= n.keep {
		n.turn(now)
	}
	h := maphash.Comparable(n.seed, name)
	if holds(n.now, h) || holds(n.old, h) {
		return false, true
	}
	if n.count >= maxNames {
		return true, false
	}
	n.count++
	for i := range uint64(nameProbes) {
		at := probe(h, i)
		n.now[at/bitsPerWord] |= 1 << (at % bitsPerWord)
	}
	return true, true
}

// turn begins a generation. Names of the previous one are remembered for that long again.
func (n *names[K]) turn(now time.Time) {
	if n.now == nil {
		n.seed = maphash.MakeSeed()
	}
	n.old, n.now = n.now, make([]uint64, nameBits/bitsPerWord)
	n.count, n.since = 0, now
}

func holds(generation []uint64, h uint64) bool {
	if generation == nil {
		return false
	}
	for i := range uint64(nameProbes) {
		if at := probe(h, i); generation[at/bitsPerWord]&(1<<(at%bitsPerWord)) == 0 {
			return false
		}
	}
	return true
}

// probe returns the position of the bit for hash h and probe number i.
func probe(h, i uint64) uint64 { return (h + i*(h>>32|1)) % nameBits }

package replay

import (
	"hash/maphash"
	"time"
)

// Bounds of what is remembered of names: a mebibyte for each of two generations, in which one name
// in some hundreds is taken for one that was there. As many names may come within a generation.
const (
	nameBits    = 1 << 23
	nameProbes  = 4
	maxNames    = 600_000
	bitsPerWord = 64
)

// names remembers which names have been there, each for at least a generation. It is a Bloom
// filter, so it may take a new name for one that was there, but never the other way round. The hash
// has a seed of its own, so nobody can choose names that are taken for others.
type names[K comparable] struct {
	keep     time.Duration // how long a generation is
	seed     maphash.Seed
	now, old []uint64
	count    int
	since    time.Time
}

// add remembers a name. It reports whether that is certainly new, and whether there is room for it:
// if not, nothing is remembered.
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

// turn begins a generation. What is in the one before is remembered for as long again.
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

// probe is the place of the bit that belongs to a hash and a number.
func probe(h, i uint64) uint64 { return (h + i*(h>>32|1)) % nameBits }

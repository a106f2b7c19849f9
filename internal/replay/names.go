package replay

import (
	"hash/maphash"
	"time"
)

// Bounds of the memory for names: one mebibyte for each of two generations. With maxNames in a
// generation, one new name in some hundreds is mistaken for a known one.
const (
	nameBits    = 1 << 23
	nameProbes  = 4
	maxNames    = 600_000
	bitsPerWord = 64
	// fewNames is how many names a generation stores individually, in tens of kilobytes, before it
	// takes memory for maxNames.
	fewNames = 500
)

// names remembers each name for at least one generation. Beyond fewNames it is a Bloom filter, so
// it may mistake a new name for a known one, but never a known one for new. The hash has a random
// seed, so that no client can choose names that collide.
type names[K comparable] struct {
	keep     time.Duration // how long a generation is
	seed     maphash.Seed
	now, old generation
	since    time.Time // zero before the first generation
}

// add remembers a name. isNew reports whether the name is certainly new, room whether there is room
// for it. Without room, nothing is remembered.
func (n *names[K]) add(name K, now time.Time) (isNew, room bool) {
	if n.since.IsZero() || now.Sub(n.since) >= n.keep {
		n.rotate(now)
	}
	h := maphash.Comparable(n.seed, name)
	if n.now.has(h) || n.old.has(h) {
		return false, true
	}
	return true, n.now.add(h)
}

// rotate begins a generation. It remembers the names of the previous one for the length of another
// generation.
func (n *names[K]) rotate(now time.Time) {
	if n.since.IsZero() {
		n.seed = maphash.MakeSeed()
	}
	n.old, n.now, n.since = n.now, generation{}, now
}

// generation is a set of hashes.
type generation struct {
	few  map[uint64]struct{} // all of them, until there are too many
	bits []uint64            // a Bloom filter of all of them from then on
	n    int
}

// add adds a hash if there is room for it.
func (g *generation) add(h uint64) (room bool) {
	if g.n >= maxNames {
		return false
	}
	if g.n++; g.bits == nil && len(g.few) < fewNames {
		if g.few == nil {
			g.few = map[uint64]struct{}{}
		}
		g.few[h] = struct{}{}
		return true
	}
	if g.bits == nil {
		g.convertToFilter()
	}
	g.setBits(h)
	return true
}

// convertToFilter converts the names to a filter.
func (g *generation) convertToFilter() {
	g.bits = make([]uint64, nameBits/bitsPerWord)
	for h := range g.few {
		g.setBits(h)
	}
	g.few = nil
}

func (g *generation) setBits(h uint64) {
	for i := range uint64(nameProbes) {
		at := probe(h, i)
		g.bits[at/bitsPerWord] |= 1 << (at % bitsPerWord)
	}
}

func (g *generation) has(h uint64) bool {
	if g.bits == nil {
		_, has := g.few[h]
		return has
	}
	for i := range uint64(nameProbes) {
		if at := probe(h, i); g.bits[at/bitsPerWord]&(1<<(at%bitsPerWord)) == 0 {
			return false
		}
	}
	return true
}

// probe returns the position of the bit for hash h and probe number i.
func probe(h, i uint64) uint64 { return (h + i*(h>>32|1)) % nameBits }

package httpapi

import (
	"hash/maphash"
	"time"
)

// Bounds of what is remembered of the names of sessions: a mebibyte for each of two generations, in
// which one name in some hundreds is taken for one that was used. As many sessions may begin within
// sessionMemory.
const (
	begunBits    = 1 << 23
	begunProbes  = 4
	maxBegun     = 600_000
	begunPerWord = 64
)

// begun remembers which sessions have begun, for longer than the sessions themselves: the first
// request of a forgotten session must not be executed again. It is a Bloom filter, so it may
// mistake a new name for a used one, but never a used one for new. The hash is seeded, so nobody
// can choose names that collide.
type begun struct {
	seed     maphash.Seed
	now, old []uint64
	count    int
	since    time.Time
}

// add remembers a name. It reports whether the name is certainly new, and whether there is room for
// it; if not, nothing is remembered.
func (b *begun) add(name []byte, now time.Time) (fresh, room bool) {
	if b.now == nil || now.Sub(b.since) >= sessionMemory {
		b.turn(now)
	}
	h := maphash.Bytes(b.seed, name)
	if b.holds(b.now, h) || b.holds(b.old, h) {
		return false, true
	}
	if b.count >= maxBegun {
		return true, false
	}
	b.count++
	for i := range uint64(begunProbes) {
		at := probe(h, i)
		b.now[at/begunPerWord] |= 1 << (at % begunPerWord)
	}
	return true, true
}

// turn begins a new generation. The previous one is remembered for as long again.
func (b *begun) turn(now time.Time) {
	if b.now == nil {
		b.seed = maphash.MakeSeed()
	}
	b.old, b.now = b.now, make([]uint64, begunBits/begunPerWord)
	b.count, b.since = 0, now
}

func (b *begun) holds(generation []uint64, h uint64) bool {
	if generation == nil {
		return false
	}
	for i := range uint64(begunProbes) {
		if at := probe(h, i); generation[at/begunPerWord]&(1<<(at%begunPerWord)) == 0 {
			return false
		}
	}
	return true
}

// probe returns the position of the i-th bit of a hash.
func probe(h, i uint64) uint64 { return (h + i*(h>>32|1)) % begunBits }

package hashset

import "twotier.dev/twotier/internal/slab"

// minWords is the size of the smallest non-empty set, in words. Sizes are powers of two.
const minWords = 8

// Set is a set of hashes. Make one with [New].
type Set struct {
	pool  *slab.Pool
	words []uint64 // two hashes each; 0 stands for none
	used  int
}

// New returns an empty set that takes its memory from pool.
func New(pool *slab.Pool) Set { return Set{pool: pool} }

// Len returns the number of hashes in the set.
func (s *Set) Len() int { return s.used }

// Words returns the memory that the set takes, in words of 8 bytes.
func (s *Set) Words() int { return len(s.words) }

// Growth returns how many more words the set takes once another hash is added, 0 if there is room
// for it.
func (s *Set) Growth() int {
	if (s.used+1)*5 <= len(s.words)*2*4 {
		return 0
	}
	return max(minWords, len(s.words))
}

// Has reports whether a hash is in the set.
func (s *Set) Has(hash uint32) bool {
	if s.used == 0 {
		return false
	}
	return s.at(s.find(stored(hash))) != 0
}

// Add adds a hash.
func (s *Set) Add(hash uint32) {
	if more := s.Growth(); more > 0 {
		s.grow(len(s.words) + more)
	}
	hash = stored(hash)
	if slot := s.find(hash); s.at(slot) == 0 {
		s.set(slot, hash)
		s.used++
	}
}

// Drop gives the set's memory back. The set is then empty and can be used again.
func (s *Set) Drop() {
	s.pool.Give(s.words)
	*s = New(s.pool)
}

// stored returns the value of a hash in a slot: 0 marks an empty slot, so 0 and 1 share a value.
func stored(hash uint32) uint32 { return max(hash, 1) }

// find returns the slot of a hash, or the empty slot where it belongs.
func (s *Set) find(hash uint32) uint32 {
	mask := uint32(2*len(s.words) - 1)
	slot := hash & mask
	for at := s.at(slot); at != 0 && at != hash; at = s.at(slot) {
		slot = (slot + 1) & mask
	}
	return slot
}

func (s *Set) at(slot uint32) uint32 { return uint32(s.words[slot/2] >> (slot % 2 * 32)) }

func (s *Set) set(slot, hash uint32) { s.words[slot/2] |= uint64(hash) << (slot % 2 * 32) }

func (s *Set) grow(words int) {
	old := *s
	s.words = s.pool.Take(words)
	for slot := range uint32(2 * len(old.words)) {
		if hash := old.at(slot); hash != 0 {
			s.set(s.find(hash), hash)
		}
	}
	s.pool.Give(old.words)
}

package keys

import (
	"sync/atomic"
	"time"

	"twotier.dev/twotier/internal/hashset"
	"twotier.dev/twotier/internal/slab"
)

// listShare is the part of the memory, as 1/listShare, that the hashes of stored keys may take.
const listShare = 8

// ListMemory bounds the memory for the hashes of all partitions.
type ListMemory struct {
	pool *slab.Pool
	used atomic.Int64 // in words
}

// NewListMemory returns a bound that depends on the size of a pool.
func NewListMemory(pool *slab.Pool) *ListMemory { return &ListMemory{pool: pool} }

// reserve reserves words for a growing set, unless that is too much.
func (m *ListMemory) reserve(words int) bool {
	// While a set grows, its old memory is still in use.
	if !m.pool.Fits(2*int64(words)) || m.used.Load()+int64(words) > m.pool.CommonWords()/listShare {
		return false
	}
	m.used.Add(int64(words))
	return true
}

// StoredHashes holds the hashes of keys that the store may have: the keys on its list when it was
// read, and keys that have left memory since. It is no statement about keys in memory.
type StoredHashes struct {
	memory *ListMemory // nil: keys that leave memory are not recorded
	hashset.Set
	// Kept reports whether the set is complete since Begin. It is not if memory ran out, which last
	// happened at FullAt.
	Kept   bool
	FullAt time.Time
}

// NewStored returns an empty set, which records nothing before Begin.
func NewStored(m *ListMemory) *StoredHashes {
	return &StoredHashes{memory: m, Set: hashset.New(m.pool)}
}

// Begin starts over with an empty set.
func (s *StoredHashes) Begin() {
	s.Drop()
	s.Kept = true
}

// Add records that the store may have a key with this hash. If there is no memory for that, it
// drops the set.
func (s *StoredHashes) Add(hash uint32) {
	if !s.Kept {
		return
	}
	if more := s.Growth(); more > 0 && !s.memory.reserve(more) {
		s.Drop()
		s.FullAt = time.Now()
		return
	}
	s.Set.Add(hash)
}

// Drop gives up the set.
func (s *StoredHashes) Drop() {
	if s.Kept {
		s.memory.used.Add(-int64(s.Words()))
		s.Set.Drop()
		s.Kept = false
	}
}

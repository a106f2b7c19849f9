package syncer

import (
	"sync/atomic"
	"time"

	"twotier.dev/twotier/internal/hashset"
	"twotier.dev/twotier/internal/slab"
)

// listShare is the part of the memory, as 1/listShare, that the hashes of stored keys may take.
const listShare = 8

// listMemory bounds the memory for the hashes of all partitions.
type listMemory struct {
	pool *slab.Pool
	used atomic.Int64 // in words
}

// take reserves words for a growing set, unless that is too much.
func (m *listMemory) take(words int) bool {
	// While a set grows, its old memory is still in use.
	if !m.pool.Fits(2*int64(words)) || m.used.Load()+int64(words) > m.pool.Common()/listShare {
		return false
	}
	m.used.Add(int64(words))
	return true
}

// storedKeys holds the hashes of keys that the store may have: the keys on its list when it was
// read, and keys that have left memory since. It is no statement about keys in memory.
type storedKeys struct {
	memory *listMemory // nil: keys that leave memory are not recorded
	set    hashset.Set
	kept   bool
	full   time.Time // when memory last ran out for them
}

func newStoredKeys(m *listMemory) *storedKeys {
	return &storedKeys{memory: m, set: hashset.New(m.pool)}
}

// bytes returns the memory that the hashes take.
func (s *storedKeys) bytes() int { return 8 * s.set.Words() }

// begin starts over with an empty set.
func (s *storedKeys) begin() {
	s.drop()
	s.kept = true
}

// add records that the store may have a key with this hash. If there is no memory for that, it
// drops the set.
func (s *storedKeys) add(hash uint32) {
	if !s.kept {
		return
	}
	if more := s.set.Growth(); more > 0 && !s.memory.take(more) {
		s.drop()
		s.full = time.Now()
		return
	}
	s.set.Add(hash)
}

// drop gives up the set.
func (s *storedKeys) drop() {
	if s.kept {
		s.memory.used.Add(-int64(s.set.Words()))
		s.set.Drop()
		s.kept = false
	}
}

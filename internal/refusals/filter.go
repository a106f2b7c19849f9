package refusals

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"
)

// filter rules out most keys without remembered refusals. Asking the cache takes an allocation and
// some locks, more than all the other work of forwarding a batched operation
// (BenchmarkNothingRemembered). Of the keys that share a slot, the filter admits the one noted
// last.
type filter struct {
	seed  maphash.Seed
	slots []atomic.Uint32 // the fingerprint of the key noted last; 0 if there is none
}

// newFilter returns a filter with several slots for each of that many keys.
func newFilter(keys int) *filter {
	const slotsPerKey = 4
	return &filter{seed: maphash.MakeSeed(),
		slots: make([]atomic.Uint32, 1<<bits.Len(uint(slotsPerKey*keys-1)))}
}

// slot returns the slot of a key, and the key's fingerprint, which is never 0.
func (f *filter) slot(name []byte) (s *atomic.Uint32, fingerprint uint32) {
	h := maphash.Bytes(f.seed, name)
	return &f.slots[h&uint64(len(f.slots)-1)], uint32(h>>32) | 1
}

// admit admits a key.
func (f *filter) admit(name []byte) {
	s, fingerprint := f.slot(name)
	s.Store(fingerprint)
}

// mayHave reports whether there may be a remembered refusal of a key.
func (f *filter) mayHave(name []byte) bool {
	s, fingerprint := f.slot(name)
	return s.Load() == fingerprint
}

package syncer

import "twotier.dev/twotier/internal/arena"

// A flush reads entries and counters that nobody has looked at for a while. When there are so many
// keys that they don't fit the processor's caches, a walk from one to the next waits for memory at
// each step, which can take longer than all the rest; loads that don't depend on each other
// overlap. So what is about to be read is touched before.

// touchAtOnce is how many entries are touched at a time: with their counters they stay well below
// what a core caches for itself.
const touchAtOnce = 512

// touch reads a word of each entry, and then of what they refer to. The partition is locked, and
// keeps the sum only so that the reads are not optimized away.
func (s *keyspace) touch(refs []arena.Ref) {
	sum := uint64(0)
	for _, r := range refs {
		if r != 0 {
			sum += s.arena.Tail(r)[2]
		}
	}
	for _, r := range refs {
		if r == 0 {
			continue
		}
		e := entry(s.arena.Tail(r))
		sum += e[e.inlineAt()]
		if at := e.synced(); at != 0 {
			sum += s.arena.Tail(at)[0]
		}
	}
	s.touched = sum
}

// touchDirty touches the next entries of the dirty list.
func (b *ledger) touchDirty() {
	next := b.dirty.waiting()
	b.keys.touch(next[:min(len(next), touchAtOnce)])
}

// touchKeys touches what keys of a round refer to.
func (b *ledger) touchKeys(keys []KeyRound) {
	refs := make([]arena.Ref, 0, touchAtOnce)
	for i := range keys[:min(len(keys), touchAtOnce)] {
		refs = append(refs, keys[i].ref)
	}
	b.keys.touch(refs)
}

package syncer

import "twotier.dev/twotier/internal/arena"

// A flush reads entries and counters that have not been used for a while. With more keys than fit
// the processor's caches, walking from one to the next misses the cache at each step, which can
// take longer than everything else. Loads that don't depend on each other overlap, so the next
// entries are touched in advance.

// touchAtOnce is how many entries are touched at a time. With their counters they take up much less
// than a core's own cache.
const touchAtOnce = 512

// touch reads a word of each entry, and then of the counters it refers to. The sum is only kept so
// that the compiler doesn't remove the reads. The partition is locked.
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

// touchKeys touches the entries and counters of the next keys of a round.
func (b *ledger) touchKeys(keys []KeyRound) {
	refs := make([]arena.Ref, 0, touchAtOnce)
	for i := range keys[:min(len(keys), touchAtOnce)] {
		refs = append(refs, keys[i].ref)
	}
	b.keys.touch(refs)
}

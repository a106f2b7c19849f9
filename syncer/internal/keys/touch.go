package keys

import "twotier.dev/twotier/internal/arena"

// A flush reads entries and counters that have not been used for a while. With more keys than fit
// the processor's caches, walking from one to the next misses the cache at each step, which can
// take longer than everything else. Loads that don't depend on each other overlap, so the next
// entries are touched in advance.

// TouchAtOnce is how many entries are touched at a time. With their counters they take up much less
// than a core's own cache.
const TouchAtOnce = 512

// Prefetch reads a word of each entry, and then of the counters it refers to. The sum is only kept
// so that the compiler doesn't remove the reads. The partition is locked.
func (s *Keyspace) Prefetch(refs []arena.Ref) {
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
		e := Entry(s.arena.Tail(r))
		sum += e[e.inlineAt()]
		if at := e.syncedRef(); at != 0 {
			sum += s.arena.Tail(at)[0]
		}
	}
	s.touched = sum
}

// PrefetchSlot reads the table where a key with this hash would be.
func (s *Keyspace) PrefetchSlot(hash uint32) uint64 { return s.table.Prefetch(hash) }

// PrefetchEntry reads the first entry with this hash, and returns its place, or 0 if there is none.
func (s *Keyspace) PrefetchEntry(hash uint32) (r arena.Ref, sum uint64) {
	if r = s.table.Find(hash, func(arena.Ref) bool { return true }); r != 0 {
		sum = s.arena.Tail(r)[2]
	}
	return r, sum
}

// PrefetchCounters reads the pending counter of an entry and, if synced is set, its synced counter.
func (s *Keyspace) PrefetchCounters(r arena.Ref, synced bool) (sum uint64) {
	e := Entry(s.arena.Tail(r))
	sum = e[e.inlineAt()]
	if at := e.syncedRef(); synced && at != 0 {
		sum += s.arena.Tail(at)[0]
	}
	return sum
}

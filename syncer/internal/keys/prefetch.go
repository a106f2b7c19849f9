package keys

import "twotier.dev/twotier/internal/arena"

// A flush reads entries and counters that have not been used for a while. With more keys than fit
// the processor's caches, walking from one to the next misses the cache at each step, which can
// take longer than everything else. Loads that don't depend on each other overlap, so the next
// entries are prefetched.

// PrefetchAtOnce is how many entries are prefetched at a time. With their counters they take up
// much less than a core's own cache.
const PrefetchAtOnce = 512

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

// Place is where a key may be: its keyspace and its hash.
type Place struct {
	Keyspace *Keyspace
	Hash     uint32
	ref      arena.Ref // the first entry with this hash
}

// PrefetchPlaces reads the slot of each place, then its first entry, and then the counters of that
// entry, the synced one only if synced is set. The partitions are locked. The caller keeps the sum,
// so that the compiler doesn't remove the reads. Everything in the loops is inlined: calls between
// the reads would leave the processor fewer of them to overlap.
func PrefetchPlaces(places []Place, synced bool) (sum uint64) {
	for i := range places {
		p := &places[i]
		sum += p.Keyspace.table.Prefetch(p.Hash)
	}
	for i := range places {
		p := &places[i]
		if p.ref = p.Keyspace.table.Find(p.Hash, func(arena.Ref) bool { return true }); p.ref != 0 {
			sum += p.Keyspace.arena.Tail(p.ref)[2]
		}
	}
	for i := range places {
		p := &places[i]
		if p.ref == 0 {
			continue
		}
		e := Entry(p.Keyspace.arena.Tail(p.ref))
		sum += e[e.inlineAt()]
		if at := e.syncedRef(); synced && at != 0 {
			sum += p.Keyspace.arena.Tail(at)[0]
		}
	}
	return sum
}

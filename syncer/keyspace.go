package syncer

import (
	"iter"

	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/internal/slab"
	"twotier.dev/twotier/internal/table"
	"twotier.dev/twotier/leaparray"
)

// keyspace holds the keys of a partition that are in memory. It is guarded by the partition's lock.
type keyspace struct {
	names *namespaces // shared by all partitions
	clock clock
	table table.Table
	arena arena.Arena
	drops dropLog
	// stored holds keys that the store may have and memory does not. It is separate because
	// operations on keys in memory don't use it.
	stored *storedKeys

	changing change  // see change
	changes  []int64 // scratch of setSynced

	evictSlot int // where the search for an entry to evict continues
	// sparedUntil is the second before which the partition gives nothing up for others, because it
	// had nothing to give.
	sparedUntil uint32

	pendingBuckets int64 // buckets with counts that the store has not acknowledged
	expired        int64 // events that left every window before the store accepted them
	evicted        int64
	unread         int64  // how often a key was not read because the store does not list it
	touched        uint64 // see touch
}

// space returns an entry's namespace, and ladder the namespace's ladder.
func (s *keyspace) space(e entry) *space { return s.names.all[e.space()] }

func (s *keyspace) ladder(e entry) *leaparray.Ladder { return s.space(e).ladder }

// all iterates over the entries. None may be dropped or moved meanwhile.
func (s *keyspace) all() iter.Seq2[arena.Ref, entry] {
	return func(yield func(arena.Ref, entry) bool) {
		for i := range s.table.Slots() {
			if at := s.table.At(i); at != 0 && !yield(at, s.entry(at)) {
				return
			}
		}
	}
}

func newKeyspace(pool *slab.Pool, names *namespaces, clock clock) keyspace {
	return keyspace{names: names, clock: clock, table: table.New(pool), arena: arena.New(pool)}
}

// dropsKept is how many of its latest drops a partition remembers.
const dropsKept = 64

// dropLog holds the hashes of the keys that were dropped from memory last.
type dropLog struct {
	hashes [dropsKept]uint32
	n      uint64 // number of drops so far
}

func (d *dropLog) add(hash uint32) {
	d.hashes[d.n%dropsKept] = hash
	d.n++
}

// mayHave reports whether a key with this hash may have been dropped after the first n drops.
func (d *dropLog) mayHave(hash uint32, n uint64) bool {
	if d.n-n > dropsKept {
		return true
	}
	for ; n < d.n; n++ {
		if d.hashes[n%dropsKept] == hash {
			return true
		}
	}
	return false
}

// find returns the place of a key's entry, or 0 if it has none.
func (s *keyspace) find(hash uint32, ns, key []byte) arena.Ref {
	return s.table.Find(hash, func(r arena.Ref) bool { return s.entry(r).is(ns, key) })
}

// insert makes an entry for a key that has none. There must be room for it.
func (s *keyspace) insert(hash uint32, ns, key []byte, space int) arena.Ref {
	r := s.arena.Alloc(entryWords(ns, key))
	e := entry(s.arena.Tail(r))
	e.setName(ns, key)
	e.setSpace(space)
	s.table.Insert(hash, r)
	s.names.all[space].keys.Add(1)
	return r
}

// insertCold makes an entry for a key that has none, regardless of the budget. The entry is cold:
// the store's counts of the key are unknown.
func (s *keyspace) insertCold(hash uint32, ns, key []byte) arena.Ref {
	i := s.names.index(ns)
	at := s.insert(hash, ns, key, i)
	e := s.entry(at)
	e.setUsed(s.clock.second())
	e.set(flagCold)
	return at
}

// drop removes an entry from memory.
func (s *keyspace) drop(hash uint32, r arena.Ref) {
	s.drops.add(hash)
	e := s.entry(r)
	s.stored.add(KeyHash(e.name()))
	s.names.all[e.space()].keys.Add(-1)
	releaseCounter(&s.arena, e.synced())
	releaseCounter(&s.arena, e.pending())
	s.table.Remove(hash, r)
	s.arena.Release(r, len(e))
}

// clear drops all keys, including their pending counts.
func (s *keyspace) clear() {
	for _, e := range s.all() {
		s.space(e).keys.Add(-1)
	}
	s.table.Drop()
	s.arena.Drop()
	s.pendingBuckets = 0
}

// entry returns the entry at r.
func (s *keyspace) entry(r arena.Ref) entry { return entryAt(&s.arena, r) }

// words returns the memory of the keys in words, bytes in bytes.
func (s *keyspace) words() int { return s.arena.Total() + s.table.Slots() }

func (s *keyspace) bytes() int { return 8 * s.words() }

// compact moves all entries into a new arena, shrinks the table to fit, and returns the new place
// of each entry.
func (s *keyspace) compact() (moved map[arena.Ref]arena.Ref) {
	moved = make(map[arena.Ref]arena.Ref, s.table.Len())
	old, oldTable := s.arena, s.table
	s.arena, s.table = old.Empty(), oldTable.Empty()
	for i := range oldTable.Slots() {
		at := oldTable.At(i)
		if at == 0 {
			continue
		}
		e := entryAt(&old, at)
		to := s.arena.Alloc(len(e))
		n := entry(s.arena.Words(to, len(e)))
		copy(n, e)
		n.setSynced(copyCounter(&s.arena, &old, e.synced()))
		n.setPending(copyCounter(&s.arena, &old, e.pending()))
		s.table.Insert(oldTable.HashAt(i), to)
		moved[at] = to
	}
	old.Drop()
	oldTable.Drop()
	return moved
}

// clock is a counter's source of time.
type clock struct {
	now    func() int64 // in unix milliseconds
	opened int64        // the zero point of an entry's last use
}

// seconds converts a time to the scale of an entry's last use; second returns the present on it.
func (c clock) seconds(now int64) uint32 { return uint32((now-c.opened)/1000) & low24 }

func (c clock) second() uint32 { return c.seconds(c.now()) }

package keys

import (
	"cmp"
	"iter"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/leaparray"
)

// sampleSize is how many entries compete for an eviction. The least recently used one goes, as in
// Redis's approximation of LRU.
const sampleSize = 8

const (
	// noSlot means no slot.
	noSlot = -1
	// AnySpace means any namespace.
	AnySpace = -1
	// EvictableAge is the least age at which an entry may be evicted, in seconds.
	EvictableAge = 2
	// ageSample is how many entries are sampled for the median age of a partition.
	ageSample = 64
	// NeverIdle is an age that no entry has.
	NeverIdle = low24 + 1
	// limitAge is how long, in seconds, an entry at a limit must be idle before it may be evicted.
	limitAge = 60
)

// EvictOne samples a few clean entries, of one namespace or of any, that were not used in the last
// second, and drops the least recently used. An entry at a limit is dropped only if there is no
// other and it has been idle for limitAge. The counts of a dropped entry can be read back from the
// store. Without a store it forgets an entry, see forgetOne.
func (s *Keyspace) EvictOne(sec uint32, space int) bool {
	if s.NoStore {
		return s.forgetOne(sec, space)
	}
	victim, last := noSlot, noSlot
	var oldest uint32
	seen := 0
	for slot, at := range s.nextEntries(16 * sampleSize) {
		e := s.EntryAt(at)
		switch idle := e.IdleSeconds(sec); {
		case idle < EvictableAge || !e.IsClean(),
			space != AnySpace && e.namespaceIndex() != space:
		case e.HasFlag(FlagLimit):
			if idle >= limitAge {
				last = slot
			}
		case idle > oldest:
			victim, oldest = slot, idle
		}
		if seen++; seen >= sampleSize && victim != noSlot {
			break
		}
	}
	if victim == noSlot {
		victim = last
	}
	if victim == noSlot {
		return false
	}
	s.Drop(s.table.HashAt(victim), s.table.RefAt(victim))
	s.Evicted++
	return true
}

// MedianAge returns the median time since the last use of the entries, in seconds, estimated from a
// sample; with a store, at least EvictableAge. The partition is locked.
func (s *Keyspace) MedianAge(sec uint32) uint32 {
	ages := make([]uint32, 0, ageSample)
	for _, at := range s.nextEntries(4 * ageSample) {
		ages = append(ages, s.EntryAt(at).IdleSeconds(sec))
	}
	if len(ages) == 0 {
		return NeverIdle
	}
	slices.Sort(ages)
	if s.NoStore {
		return ages[len(ages)/2]
	}
	return max(EvictableAge, ages[len(ages)/2])
}

// EvacuateSome handles n slots from a position, and reports whether there are more. It moves
// entries out of the chunks that are to be released, and evicts entries that were idle for at least
// age: without a store, see mayForget. Until the arena is down to this many words, it also evicts
// idle entries with counters that occupy whole chunks.
func (s *Keyspace) EvacuateSome(from, n int, age uint32, words int) (more bool) {
	if s.Arena.EvacuatingWords() == 0 && s.Arena.TotalWords() <= words {
		return false
	}
	now := s.Clock.Now()
	sec := s.Clock.Seconds(now)
	for i := from; i < min(from+n, s.table.Slots()); i++ {
		r := s.table.RefAt(i)
		if r == 0 {
			continue
		}
		e := s.EntryAt(r)
		mustMove := s.mustMove(r, e)
		own := s.Arena.HasOwnChunk(e.syncedRef()) || s.Arena.HasOwnChunk(e.pendingRef())
		if !mustMove && !(s.Arena.TotalWords() > words && own) {
			continue
		}
		idle := e.IdleSeconds(sec)
		// A spared entry is moved instead, if possible.
		spared := e.HasFlag(FlagLimit) && (mustMove || idle < limitAge)
		switch {
		case s.NoStore && s.mayForget(e, idle, age, now):
			s.forget(s.table.HashAt(i), r)
			i-- // another slot may have moved here
		case !s.NoStore && idle >= age && e.IsClean() && !spared:
			s.Drop(s.table.HashAt(i), r)
			s.Evicted++
			i--
		case mustMove:
			s.evacuate(i, r, e)
		}
	}
	return from+n < s.table.Slots()
}

// mustMove reports whether an entry, or one of its counters, is in a chunk that is to be released.
func (s *Keyspace) mustMove(r arena.Ref, e Entry) bool {
	return s.Arena.MustMove(r) || s.Arena.MustMove(e.syncedRef()) ||
		s.Arena.MustMove(e.pendingRef())
}

// evacuate moves an entry's counters to other chunks, and the entry itself unless something refers
// to it.
func (s *Keyspace) evacuate(slot int, r arena.Ref, e Entry) {
	e.setSyncedRef(evacuateCounter(&s.Arena, e.syncedRef()))
	e.setPendingRef(evacuateCounter(&s.Arena, e.pendingRef()))
	if !s.Arena.MustMove(r) || e.HasFlag(FlagDirty|FlagBusy|FlagParked|FlagShared) {
		return
	}
	to := s.Arena.Alloc(len(e))
	copy(s.Arena.Words(to, len(e)), e)
	s.table.Replace(slot, to)
	s.Arena.Release(r, len(e))
}

// Sweep drops counts that have left every window, and entries without counts, in n slots from a
// position. It reports whether there are more.
func (s *Keyspace) Sweep(from, n int) (more bool) {
	now := s.Clock.Now()
	sec := s.Clock.Seconds(now)
	for i := from; i < min(from+n, s.table.Slots()); i++ {
		r := s.table.RefAt(i)
		if r == 0 {
			continue
		}
		e := s.EntryAt(r)
		l := s.Ladder(e)
		if int64(e.IdleSeconds(sec))*1000 <= l.FineSpan() || e.HasFlag(FlagBusy) {
			continue
		}
		s.forgetExpired(e, l, now)
		if e.IsClean() && !e.HasSynced() {
			s.Drop(s.table.HashAt(i), r)
			i-- // another slot may have moved here
		}
	}
	return from+n < s.table.Slots()
}

// latestStart returns when the last bucket of an entry begins.
func (s *Keyspace) latestStart(e Entry, l *leaparray.Ladder) int64 {
	if e.IsValues() {
		return s.ValuesOf(e).Latest()
	}
	return max(l.LatestStart(s.SyncedOf(e)), l.LatestStart(s.PendingOf(e)))
}

// oldestStart returns the earliest start of a bucket that a window can still see, if it ends no
// longer ago than an event may be.
func oldestStart(l *leaparray.Ladder, now int64) int64 {
	return l.CompleteFrom(now) - l.CoarsestWidth()
}

// forgetExpired drops the counts of an idle entry once all of them have left every window that ends
// as long ago as an event may be.
func (s *Keyspace) forgetExpired(e Entry, l *leaparray.Ladder, now int64) {
	last, oldest := s.latestStart(e, l), oldestStart(l, now)
	if e.HasPending() && !e.HasFlag(FlagBusy) && last < oldest {
		s.Expired += max(0, l.Total(s.PendingOf(e)))
		s.ClearPending(e)
	}
	if e.HasSynced() && last < oldest && e.IsClean() {
		s.DropSynced(e)
	}
}

// Without a store, an evicted key is forgotten. So a full counter does not evict what was not used
// for longest, but what has counted least: keys at their limits outlive the keys of a flood. It
// compares runs of keys, in the order of the table, which is that of their hashes, and forgets the
// lowest quarter of each. A key above two thirds of all keys stays, except with a probability of
// less than 1e-11 for each run: 49 of 64 keys would have to be of the upper third.

const (
	// comparedKeys is how many keys are compared with each other, and forgottenKeys how many of
	// them are forgotten.
	comparedKeys  = 64
	forgottenKeys = 16
)

// candidate is a key that may be forgotten.
type candidate struct {
	hash      uint32
	at        arena.Ref
	rank      float64
	companion bool
	idle      uint32 // in seconds
	mayGo     bool
}

// compareCandidates orders keys by their ranks. Among equals companions come last, and the key that
// was not used for longest comes first.
func compareCandidates(a, b candidate) int {
	if a.rank == b.rank && a.companion != b.companion {
		if a.companion {
			return 1
		}
		return -1
	}
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.idle, a.idle))
}

// forgetOne makes room for a key without a store. It forgets several keys at a time, and none in
// the calls that follow. It forgets none that is pinned, and none above s.MostForgotten.
func (s *Keyspace) forgetOne(sec uint32, space int) bool {
	if space == AnySpace && s.forgotten > 0 {
		s.forgotten--
		return true
	}
	n := s.forgetLowest(s.compare(sec, space), space)
	if space == AnySpace {
		s.forgotten = max(0, n-1)
	}
	return n > 0
}

// Pin keeps an entry from being forgotten while an operation refers to it. Unpin with the result
// unpins it, and those that were pinned after it.
func (s *Keyspace) Pin(at arena.Ref) (pin int) {
	s.pins = append(s.pins, at)
	return len(s.pins) - 1
}

// Unpin unpins entries.
func (s *Keyspace) Unpin(pin int) { s.pins = s.pins[:pin] }

// forgetLowest forgets the lowest quarter of some keys. Of a namespace it only forgets a key that
// has no counts left: if the namespace has its most keys, new ones are refused. It returns how many
// keys it has forgotten.
func (s *Keyspace) forgetLowest(some []candidate, space int) (n int) {
	slices.SortFunc(some, compareCandidates)
	for i := range some[:min(len(some), max(1, len(some)*forgottenKeys/comparedKeys))] {
		c := &some[i]
		goes := c.rank <= s.MostForgotten
		if space != AnySpace {
			goes = n == 0 && c.rank == 0
		}
		if goes && c.mayGo {
			s.forget(c.hash, c.at)
			n++
		}
	}
	return n
}

// compare returns the next keys to compare, of one namespace or of any.
func (s *Keyspace) compare(sec uint32, space int) []candidate {
	some, now := s.candidates[:0], s.Clock.Now()
	for slot, at := range s.nextEntries(4 * comparedKeys) {
		if e := s.EntryAt(at); space == AnySpace || e.namespaceIndex() == space {
			some = append(some, candidate{hash: s.table.HashAt(slot), at: at,
				rank: s.rank(e, now), companion: e.isCompanion(), idle: e.IdleSeconds(sec),
				mayGo: !e.isInUse() && !slices.Contains(s.pins, at)})
		}
		if len(some) == comparedKeys {
			break
		}
	}
	s.candidates = some
	return some
}

// mayForget reports whether an evacuation may forget an entry: it ranks below MostForgotten or,
// among equals, was idle for at least age.
func (s *Keyspace) mayForget(e Entry, idle, age uint32, now int64) bool {
	if age == NeverIdle || e.isInUse() {
		return false
	}
	rank := s.rank(e, now)
	return rank < s.MostForgotten || rank == s.MostForgotten && idle >= age
}

// forget drops a key along with its counts.
func (s *Keyspace) forget(hash uint32, at arena.Ref) {
	e := s.EntryAt(at)
	s.ClearPending(e)
	s.Drop(hash, at)
	s.Evicted++
}

// rank returns the place of a key in the order in which keys are forgotten: its count, or 0 if that
// has left every window. A companion, such as a ban or a lease, ranks with the key that it belongs
// to: it has a count of one, and would go before the counts of that key.
func (s *Keyspace) rank(e Entry, now int64) float64 {
	n := s.rankAlone(e, now)
	if n == 0 || !e.isCompanion() {
		return n
	}
	s.FollowKey(e, now)
	return max(n, float64(e.accompanied()))
}

// rankAlone is rank without regard to other keys.
func (s *Keyspace) rankAlone(e Entry, now int64) float64 {
	l := s.Ladder(e)
	if s.latestStart(e, l) < oldestStart(l, now) {
		return 0
	}
	if e.IsValues() {
		return float64(s.ValuesOf(e).Len())
	}
	return float64(l.Total(s.SyncedOf(e))) + float64(l.Total(s.PendingOf(e)))
}

// FollowKey brings the rank of a companion up to date with its key, when it has counted and before
// it is ranked. If the key is gone, or has counted less since, the companion keeps its rank. Other
// entries stay as they are.
func (s *Keyspace) FollowKey(e Entry, now int64) {
	if !e.isCompanion() {
		return
	}
	ns, key := twotier.Accompanied(e.Name())
	if IsDefault(ns) {
		ns = nil
	}
	if at := s.Find(s.Names.Hash(ns, key), ns, key); at != 0 {
		e.setAccompanied(s.rankAlone(s.EntryAt(at), now))
	}
}

// AppendRanks appends the ranks of the next keys.
func (s *Keyspace) AppendRanks(to []float64, most int) []float64 {
	now := s.Clock.Now()
	for _, at := range s.nextEntries(8 * most) {
		to = append(to, s.rank(s.EntryAt(at), now))
		if most--; most == 0 {
			break
		}
	}
	return to
}

// nextEntries goes on in the search for entries to evict: it iterates over those in the next n
// slots.
func (s *Keyspace) nextEntries(n int) iter.Seq2[int, arena.Ref] {
	return func(yield func(slot int, at arena.Ref) bool) {
		for range min(s.table.Slots(), n) {
			s.evictSlot = (s.evictSlot + 1) % s.table.Slots()
			if at := s.table.RefAt(s.evictSlot); at != 0 && !yield(s.evictSlot, at) {
				return
			}
		}
	}
}

package keys

import (
	"cmp"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/arena"
)

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
	for range min(s.table.Slots(), 4*comparedKeys) {
		s.evictSlot = (s.evictSlot + 1) % s.table.Slots()
		at := s.table.RefAt(s.evictSlot)
		if at == 0 {
			continue
		}
		if e := s.EntryAt(at); space == AnySpace || e.namespaceIndex() == space {
			some = append(some, s.candidate(s.evictSlot, sec, now))
		}
		if len(some) == comparedKeys {
			break
		}
	}
	s.candidates = some
	return some
}

// candidate returns the key in a slot.
func (s *Keyspace) candidate(slot int, sec uint32, now int64) candidate {
	at := s.table.RefAt(slot)
	e := s.EntryAt(at)
	idle := e.IdleSeconds(sec)
	return candidate{hash: s.table.HashAt(slot), at: at, rank: s.rank(e, now),
		companion: e.isCompanion(), idle: idle, mayGo: !e.isInUse() && !slices.Contains(s.pins, at)}
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
	s.ClearPending(e, s.Ladder(e))
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
	for tries := min(s.table.Slots(), 8*most); tries > 0 && most > 0; tries-- {
		s.evictSlot = (s.evictSlot + 1) % s.table.Slots()
		if at := s.table.RefAt(s.evictSlot); at != 0 {
			to = append(to, s.rank(s.EntryAt(at), now))
			most--
		}
	}
	return to
}

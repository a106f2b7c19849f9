package keys

import (
	"cmp"
	"slices"

	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/store"
)

// The entry of a key of different values (twotier.ValuesKey) has lists of values in place of
// counters, in blocks of the same kind: the lower half of the first word is the length of the list.
// Synced is what the store is known to have, and pending what it has not acknowledged. A value may
// be in both.

// ValuesOf returns the synced and pending values of an entry.
func (s *Keyspace) ValuesOf(e Entry) leaparray.ValuesView {
	if !e.IsValues() {
		return leaparray.ValuesView{}
	}
	return leaparray.ValuesView{A: listAt(&s.Arena, e.syncedRef()),
		B: listAt(&s.Arena, e.pendingRef())}
}

// listAt returns the list in a block, nil for 0.
func listAt(a *arena.Arena, r arena.Ref) leaparray.ValueList {
	b := counterAt(a, r)
	if len(b) == 0 {
		return nil
	}
	n := int(b[0] & low32)
	return leaparray.ValueList(b[1 : 1+n : 1+n])
}

// setLength records the length of the list in a block.
func setLength(a *arena.Arena, r arena.Ref, n int) {
	b := counterAt(a, r)
	b[0] = b[0]&^low32 | uint64(n)
}

// GrowthOf returns about how many words an entry may need for more counts, or for these values.
func (s *Keyspace) GrowthOf(e Entry, values []uint64) int {
	if !e.IsValues() {
		return s.Ladder(e).MaxWords()
	}
	n := len(values)
	if have := len(counterAt(&s.Arena, e.pendingRef())); have > 0 {
		return have + have/4 + 2*n
	}
	return 1 + 2*n
}

// See adds values, in order, that were seen at a time. The key then has at most so many that count.
func (s *Keyspace) See(e Entry, values []uint64, at, now int64, most int) {
	puts := s.puts[:0]
	since := now - s.Ladder(e).Span()
	s.ValuesOf(e).See(values, at, since, most, func(hash uint64, seen int64) {
		puts = append(puts, hash, uint64(seen))
	})
	s.puts = puts
	if at <= since || len(puts) == 0 {
		return
	}
	before := e.pendingRef()
	s.putPending(e, sorted(puts))
	// A look at all values is worth it once they need more room.
	if s.NoStore && (e.pendingRef() != before || s.ValuesOf(e).B.Len() > most) {
		s.dropIdle(e, since)
	}
}

// sorted puts the classes of a list, which follow its values, in front of these.
func sorted(puts leaparray.ValueList) leaparray.ValueList {
	at := len(puts)
	for at > 2 && puts[at-2] < puts[0] {
		at -= 2
	}
	if at == len(puts) {
		return puts
	}
	return slices.Concat(puts[at:], puts[:at])
}

// dropIdle drops pending values that no window needs, once that is worth it.
func (s *Keyspace) dropIdle(e Entry, since int64) {
	pending := s.ValuesOf(e).B
	idle := 0
	leaparray.ValuesView{A: pending}.EachIdle(since, func(uint64, int64) { idle++ })
	if idle < 8 || idle < pending.Len()/4 {
		return
	}
	kept := make(leaparray.ValueList, 0, len(pending)-2*idle)
	next := 0
	leaparray.ValuesView{A: pending}.EachIdle(since, func(hash uint64, _ int64) {
		at, _ := pending.Find(hash)
		kept = append(kept, pending[2*next:2*at]...)
		next = at + 1
	})
	kept = append(kept, pending[2*next:]...)
	s.setPending(e, kept)
}

// setPending replaces the pending values.
func (s *Keyspace) setPending(e Entry, list leaparray.ValueList) {
	s.PendingBuckets += int64(list.Len() - s.ValuesOf(e).B.Len())
	e.setPendingRef(s.replaceList(e.pendingRef(), list))
}

// replaceList replaces the list in a block, which may be shared with the new one, and returns the
// new block.
func (s *Keyspace) replaceList(r arena.Ref, list leaparray.ValueList) arena.Ref {
	if have := len(counterAt(&s.Arena, r)); r != 0 && len(list) > 0 && len(list) < have &&
		have <= 4*len(list)+16 {
		copy(counterAt(&s.Arena, r)[1:], list)
		setLength(&s.Arena, r, len(list))
		return r
	}
	list = slices.Clone(list)
	releaseCounter(&s.Arena, r)
	if len(list) == 0 {
		return 0
	}
	return s.newList(list, len(list))
}

// newList makes a block of a list with room for so many words.
func (s *Keyspace) newList(list leaparray.ValueList, words int) arena.Ref {
	r := s.Arena.Alloc(1 + words)
	b := s.Arena.Words(r, 1+words)
	b[0] = uint64(1+words)<<32 | uint64(len(list))
	copy(b[1:], list)
	return r
}

// putPending merges values, in order, into the pending ones.
func (s *Keyspace) putPending(e Entry, puts leaparray.ValueList) {
	before := s.ValuesOf(e).B.Len()
	e.setPendingRef(s.mergeList(e.pendingRef(), puts))
	s.PendingBuckets += int64(s.ValuesOf(e).B.Len() - before)
}

// mergeList merges values, in order, into the list in a block, and returns its place.
func (s *Keyspace) mergeList(r arena.Ref, puts leaparray.ValueList) arena.Ref {
	list, fresh := listAt(&s.Arena, r), 0
	for i := range puts.Len() {
		if at, found := list.Find(puts[2*i]); found {
			list[2*at+1] = max(list[2*at+1], puts[2*i+1])
		} else {
			fresh++
		}
	}
	if fresh == 0 {
		return r
	}
	n := len(list) + 2*fresh
	if r == 0 {
		r = s.newList(nil, n)
	} else if have := len(counterAt(&s.Arena, r)); n >= have {
		to := s.newList(list, n+n/8&^1)
		releaseCounter(&s.Arena, r)
		r = to
	}
	setLength(&s.Arena, r, n)
	insertAll(listAt(&s.Arena, r), len(list), puts)
	return r
}

// insertAll inserts those of puts into the first words of a list that it does not have. They fill
// the list.
func insertAll(list leaparray.ValueList, words int, puts leaparray.ValueList) {
	from, to := words-2, len(list)-2
	for p := len(puts) - 2; p >= 0; p -= 2 {
		for from >= 0 && list[from] > puts[p] {
			list[to], list[to+1] = list[from], list[from+1]
			from, to = from-2, to-2
		}
		if from >= 0 && list[from] == puts[p] {
			continue
		}
		list[to], list[to+1] = puts[p], puts[p+1]
		to -= 2
	}
}

// AcknowledgeValues records what the store has of some values after a round, in the order of their
// hashes. It reports whether that is as expected.
func (s *Keyspace) AcknowledgeValues(e Entry, told []store.Bucket) (expected bool) {
	known := s.ValuesOf(e).A
	if puts := s.puts[:0]; areLatest(told, known) {
		for _, v := range told {
			puts = append(puts, v.ValueHash(), uint64(v.N))
		}
		s.puts = puts
		e.setSyncedRef(s.mergeList(e.syncedRef(), puts))
		return true
	}
	expected = true
	synced := replaced(known, told, func(v store.Bucket, held int64) int64 {
		want := max(v.N, held)
		if v.N < 0 && held <= -v.N {
			want = 0
		}
		expected = expected && v.Stored == want
		return v.Stored
	})
	e.setSyncedRef(s.replaceList(e.syncedRef(), synced))
	return expected
}

// areLatest reports whether the store has exactly the times that a round has told it, and had no
// later ones as far as known: nearly always.
func areLatest(told []store.Bucket, known leaparray.ValueList) bool {
	return !slices.ContainsFunc(told, func(v store.Bucket) bool {
		return v.N < 0 || v.Stored != v.N || known.Seen(v.ValueHash()) > v.N
	})
}

// DropPendingValues drops pending values that were seen no later than a round has told the store.
// They are in the order of their hashes.
func (s *Keyspace) DropPendingValues(e Entry, told []store.Bucket) {
	s.setPending(e, replaced(s.ValuesOf(e).B, told, func(v store.Bucket, held int64) int64 {
		if held <= v.N {
			return 0
		}
		return held
	}))
}

// replaced returns a copy of a list in which fn has replaced the times of some values, in order. A
// value that is not on the list has the time 0, and one that gets the time 0 is left out.
func replaced(list leaparray.ValueList, some []store.Bucket,
	fn func(v store.Bucket, held int64) int64) leaparray.ValueList {
	to := make(leaparray.ValueList, 0, len(list)+2*len(some))
	for _, v := range some {
		at, found := list.Find(v.ValueHash())
		to = append(to, list[:2*at]...)
		held := int64(0)
		if list = list[2*at:]; found {
			held, list = int64(list[1]), list[2:]
		}
		if seen := fn(v, held); seen > 0 {
			to = append(to, v.ValueHash(), uint64(seen))
		}
	}
	return append(to, list...)
}

// listOf returns values as a list.
func listOf(cells []leaparray.Cell) leaparray.ValueList {
	sorted := slices.Clone(cells)
	slices.SortFunc(sorted, func(a, b leaparray.Cell) int {
		return cmp.Compare(a.ValueHash(), b.ValueHash())
	})
	list := make(leaparray.ValueList, 0, 2*len(sorted))
	for _, c := range sorted {
		if c.IsValue() && c.N > 0 {
			list = append(list, c.ValueHash(), uint64(c.N))
		}
	}
	return list
}

// idleShare is the part of the synced values, as 1/idleShare, that may be idle before the store is
// told that it need not keep them.
const idleShare = 8

// EachIdleValue calls fn with the synced values that the store need not keep, once there are enough
// of them.
func (s *Keyspace) EachIdleValue(e Entry, now int64, fn func(hash uint64, seen int64)) {
	v, since, n := s.ValuesOf(e), now-s.Ladder(e).Span()-leaparray.MaxAhead.Milliseconds(), 0
	v.EachIdle(since, func(uint64, int64) { n++ })
	if n > idleShare && n > v.A.Len()/idleShare {
		v.EachIdle(since, fn)
	}
}

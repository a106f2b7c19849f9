package keys

import (
	"slices"

	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer/store"
)

// MostStored is the largest sum that a key's buckets may have in the store, so that pending counts
// can be added to it without overflow. Buckets of up to manyStored never reach that sum.
const (
	MostStored = 1 << 62
	manyStored = 1 << 40
)

// PendingOf returns the counts that the store has not acknowledged, none of an entry with values.
// It is never nil, because even an empty counter may grow.
func (s *Keyspace) PendingOf(e Entry) leaparray.Counter {
	if r := e.pendingRef(); r != 0 && !e.IsValues() {
		return counterAt(&s.Arena, r)
	}
	return e.inline()
}

// SyncedOf returns the store's known counts of a key, or nil if there are none. An entry with
// values has none.
func (s *Keyspace) SyncedOf(e Entry) leaparray.Counter {
	if e.IsValues() {
		return nil
	}
	return counterAt(&s.Arena, e.syncedRef())
}

// View returns the synced and pending counts of an entry's key.
func (s *Keyspace) View(e Entry, l *leaparray.Ladder, now int64) leaparray.View {
	if !e.IsExact() {
		l = l.Blurred()
	}
	return leaparray.View{Ladder: l, A: s.SyncedOf(e), B: s.PendingOf(e), Now: now}
}

// IsClean reports whether no flush is to come for an entry, and one would be needed if it counted.
func (s *Keyspace) IsClean(e Entry) bool { return !s.NoStore && !e.HasFlag(FlagDirty|FlagParked) }

// Count counts n events of a moment as pending. A negative n takes events back.
func (s *Keyspace) Count(e Entry, l *leaparray.Ladder, ts, n, now int64) {
	v := s.View(e, l, now)
	if n < 0 {
		s.subtractAt(e, &v, ts, -n)
		return
	}
	at := v.Cell(ts)
	if s.addTo(e, &v, at, n); at.Width == 1 && v.HasSpareMoments() {
		s.Fold(e, l, now)
		e.SetRewrite(true)
	}
}

// subtractAt takes n back from the buckets of one moment, but no more than they hold.
func (s *Keyspace) subtractAt(e Entry, v *leaparray.View, ts, n int64) {
	var taken []leaparray.Cell
	v.SelectAt(ts, n, func(at leaparray.Stretch, n int64) {
		taken = append(taken, leaparray.Cell{Stretch: at, N: n})
	})
	s.subtract(e, v, taken)
}

// SubtractNewest takes n back from the newest buckets that are not empty.
func (s *Keyspace) SubtractNewest(e Entry, l *leaparray.Ladder, now, n int64) {
	v := s.View(e, l, now)
	var taken []leaparray.Cell
	v.SelectNewest(n, func(at leaparray.Stretch, n int64) {
		taken = append(taken, leaparray.Cell{Stretch: at, N: n})
	})
	s.subtract(e, &v, taken)
}

func (s *Keyspace) subtract(e Entry, v *leaparray.View, taken []leaparray.Cell) {
	for _, c := range taken {
		s.addTo(e, v, c.Stretch, -c.N)
	}
}

// MarkAhead records that an event lies ahead of the present.
func (s *Keyspace) MarkAhead(e Entry, l *leaparray.Ladder, ts, now int64) {
	beyond, v := l.BucketAfter(ts), s.View(e, l, now)
	if mark, ok := l.NewestBucket(v.A); ok && mark.Start >= beyond.Start {
		return
	}
	c := s.beginChange(e, &v)
	_, folded := c.v.Mark(&c.v.B, &c.alloc, beyond)
	e.SetRewrite(folded || e.NeedsRewrite())
	s.endChange(c, 0)
}

// AddPending adds n to one pending bucket. Of a value, it adds when it was seen, n, or nothing if
// that is not to be kept.
func (s *Keyspace) AddPending(e Entry, at leaparray.Stretch, n int64) {
	if !e.IsValues() {
		v := s.View(e, s.Ladder(e), s.Clock.Now())
		s.addTo(e, &v, at, n)
	} else if n > 0 {
		s.putPending(e, leaparray.ValueList{at.ValueHash(), uint64(n)})
	}
}

// addTo is AddPending for an entry with this view, which it keeps up to date.
func (s *Keyspace) addTo(e Entry, v *leaparray.View, at leaparray.Stretch, n int64) {
	if ch, ok := v.Ladder.Add(v.B, at, n); ok {
		s.PendingBuckets += int64(ch)
		return
	}
	c := s.beginChange(e, v)
	_, folded := c.v.Put(&c.v.B, &c.alloc, at, n)
	e.SetRewrite(folded || e.NeedsRewrite())
	s.endChange(c, n)
	*v = c.v
}

// SubtractPending removes an acknowledged count from a pending bucket, or from the one that it has
// folded into. If the bucket has left every window in the meantime, it is gone already. A value is
// removed unless it was seen later than n.
func (s *Keyspace) SubtractPending(e Entry, at leaparray.Stretch, n int64) {
	if e.IsValues() {
		s.DropPendingValues(e, []store.Bucket{{Stretch: at, N: n}})
		return
	}
	l, pending, now := s.Ladder(e), s.PendingOf(e), s.Clock.Now()
	if e.NeedsRewrite() {
		at = l.Holder(pending, at, n, now)
	}
	if at.End() > l.CompleteFrom(now) || l.Value(pending, at) != 0 {
		s.AddPending(e, at, -n)
	}
}

// change holds the two counters of an entry while they may move or fold.
type change struct {
	e      Entry
	v      leaparray.View
	alloc  counterAlloc
	before int   // pending cells
	events int64 // in these
}

// beginChange begins to change the counters of an entry with this view.
func (s *Keyspace) beginChange(e Entry, v *leaparray.View) *change {
	c := &s.changing
	c.e, c.v, c.before, c.events = e, *v, v.Ladder.CellCount(v.B), v.Ladder.Total(v.B)
	c.alloc.arena, c.alloc.blocks = &s.Arena, c.alloc.buffer[:0]
	if at := e.syncedRef(); at != 0 {
		c.alloc.blocks = append(c.alloc.blocks, block{&v.A[0], at})
	}
	if at := e.pendingRef(); at != 0 {
		c.alloc.blocks = append(c.alloc.blocks, block{&v.B[0], at})
	}
	return c
}

// endChange stores the new places of the counters. n is how many events were added to the pending
// one: if it has fewer, the rest has left every window. Events that folding drops from synced are
// in the store, so they are no loss.
func (s *Keyspace) endChange(c *change, n int64) {
	at := arena.Ref(0)
	if len(c.v.A) > 0 {
		at = c.alloc.refOf(c.v.A)
	}
	c.e.setSyncedRef(at)
	c.e.setPendingRef(c.alloc.refOf(c.v.B))
	s.PendingBuckets += int64(c.v.Ladder.CellCount(c.v.B) - c.before)
	s.Expired += max(0, c.events+n-c.v.Ladder.Total(c.v.B))
}

// dropPending empties the pending counter and releases its block.
func (s *Keyspace) dropPending(e Entry) {
	releaseCounter(&s.Arena, e.pendingRef())
	e.setPendingRef(0)
	at := e.inlineAt()
	e[at], e[at+1] = 0, 0
}

// ClearPending drops all pending counts of an entry.
func (s *Keyspace) ClearPending(e Entry) {
	s.PendingBuckets -= int64(s.Ladder(e).CellCount(s.PendingOf(e)) + s.ValuesOf(e).B.Len())
	s.dropPending(e)
}

// ReleaseEmptyPending releases the memory of a pending counter that holds nothing.
func (s *Keyspace) ReleaseEmptyPending(e Entry) {
	if l := s.Ladder(e); !e.IsValues() && l.CellCount(s.PendingOf(e)) == 0 && !s.OwesMark(e, l) {
		s.dropPending(e)
	}
}

// manyCells is from how many cells on a key folds before it is rewritten in the store.
const manyCells = 64

// ShouldFold reports whether an entry should fold before it is rewritten in the store: it has many
// cells, and its pending counts take no events back. If these folded and the store's did not,
// nobody could tell which of the store's events are meant.
func (s *Keyspace) ShouldFold(e Entry) bool {
	l, pending := s.Ladder(e), s.PendingOf(e)
	if e.IsValues() || l.CellCount(s.SyncedOf(e))+l.CellCount(pending) < manyCells {
		return false
	}
	takes := false
	l.EachCell(pending, func(_ leaparray.Stretch, n int64) bool {
		takes = takes || n < 0
		return !takes
	})
	return !takes
}

// OwesMark reports whether the store does not know yet that events lie ahead of the present.
func (s *Keyspace) OwesMark(e Entry, l *leaparray.Ladder) bool {
	mark, marked := l.Marked(s.PendingOf(e))
	newest, ok := l.NewestBucket(s.SyncedOf(e))
	return marked && (!ok || newest.Start < mark.Start)
}

// AddSynced adds to a bucket of the synced counts. If both are zero, it marks that events lie ahead
// of the present.
func (s *Keyspace) AddSynced(e Entry, l *leaparray.Ladder, at leaparray.Stretch, n int64) {
	v := s.View(e, l, s.Clock.Now())
	if _, ok := l.Add(v.A, at, n); ok && n != 0 {
		return
	}
	c, folded := s.beginChange(e, &v), false
	switch {
	case n != 0:
		_, folded = c.v.Put(&c.v.A, &c.alloc, at, n)
	case at.Width == l.Width(0) && l.Value(v.A, at) == 0:
		_, folded = c.v.Mark(&c.v.A, &c.alloc, at)
	}
	e.SetRewrite(folded || e.NeedsRewrite())
	s.endChange(c, 0)
}

// AddFlushed adds to a synced bucket what a round has added. It reports false if there was less
// than the round took back: the events are in other buckets here, and the store's are to be read.
func (s *Keyspace) AddFlushed(e Entry, at leaparray.Stretch, n int64) (known bool) {
	l := s.Ladder(e)
	held := l.Value(s.SyncedOf(e), at)
	if n < -held {
		s.ReplaceSynced(e, append(s.syncedCells(e), leaparray.Cell{Stretch: at, N: n}))
		return false
	}
	if n != 0 || held == 0 {
		s.AddSynced(e, l, at, n)
	}
	return true
}

// Fold folds the buckets of an entry.
func (s *Keyspace) Fold(e Entry, l *leaparray.Ladder, now int64) {
	v := s.View(e, l, now)
	c := s.beginChange(e, &v)
	c.v.Fold(&c.alloc, v.ExactFrom())
	s.endChange(c, 0)
}

// MergeSynced adds to what is synced of a key what another counter knows of the store: for each
// stretch of time, the larger of the two counts.
func (s *Keyspace) MergeSynced(e Entry, known []leaparray.Cell) {
	if e.IsValues() {
		e.setSyncedRef(s.mergeList(e.syncedRef(), listOf(known)))
		return
	}
	for _, c := range leaparray.MissingCells(known, s.syncedCells(e)) {
		s.AddSynced(e, s.Ladder(e), c.Stretch, c.N)
	}
}

// ReplaceSynced replaces all synced buckets, or values, of a key with loaded. A negative bucket is
// offset against the buckets that contain it.
func (s *Keyspace) ReplaceSynced(e Entry, loaded []leaparray.Cell) {
	if e.IsValues() {
		e.setSyncedRef(s.replaceList(e.syncedRef(), listOf(loaded)))
		return
	}
	s.DropSynced(e)
	l := s.Ladder(e)
	if slices.ContainsFunc(loaded, func(c leaparray.Cell) bool { return c.N < 0 }) {
		loaded = slices.DeleteFunc(leaparray.SettleNegatives(loaded), func(c leaparray.Cell) bool {
			return c.N < 0
		})
	}
	marks := loaded[:0]
	for _, c := range loaded {
		if c.N == 0 {
			marks = append(marks, c)
			continue
		}
		if c.N > manyStored { // the sum must stay valid, see CheckCounts
			c.N = max(0, min(c.N, MostStored-l.Total(s.SyncedOf(e))))
		}
		s.AddSynced(e, l, c.Stretch, c.N)
	}
	for _, c := range marks { // last, because counters drop marks when they fold
		s.AddSynced(e, l, c.Stretch, 0)
	}
}

// DropSynced drops the synced counts of a key.
func (s *Keyspace) DropSynced(e Entry) {
	releaseCounter(&s.Arena, e.syncedRef())
	e.setSyncedRef(0)
}

// PendingWeight returns the size of an entry's pending counts, or 0 if the entry may not be taken.
func (s *Keyspace) PendingWeight(e Entry) (n int64) {
	if e.HasFlag(FlagBusy|FlagParked) || !e.HasPending() {
		return 0
	}
	n = s.Ladder(e).Total(s.PendingOf(e)) + int64(s.ValuesOf(e).B.Len())
	return max(n, -n)
}

// EachSyncedCell calls fn with everything that another counter, or the store, needs to hold the
// same counts as synced.
func (s *Keyspace) EachSyncedCell(e Entry, fn func(at leaparray.Stretch, n int64)) {
	for known := s.ValuesOf(e).A; len(known) > 0; known = known[2:] {
		fn(leaparray.ValueAt(known[0]), int64(known[1]))
	}
	l, synced := s.Ladder(e), s.SyncedOf(e)
	l.EachCell(synced, func(at leaparray.Stretch, n int64) bool {
		fn(at, n)
		return true
	})
	if mark, ok := l.Marked(synced); ok {
		fn(mark, 0)
	}
}

// syncedCells returns the cells of EachSyncedCell.
func (s *Keyspace) syncedCells(e Entry) (cells []leaparray.Cell) {
	s.EachSyncedCell(e, func(at leaparray.Stretch, n int64) {
		cells = append(cells, leaparray.Cell{Stretch: at, N: n})
	})
	return cells
}

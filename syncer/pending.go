package syncer

import (
	"twotier.dev/twotier/internal/arena"
	"twotier.dev/twotier/leaparray"
)

// pending returns the counts that the store has not acknowledged. It is never nil, because even an
// empty counter may grow.
func (s *keyspace) pending(e entry) leaparray.Counter {
	if r := e.pending(); r != 0 {
		return counterAt(&s.arena, r)
	}
	return e.inline()
}

// synced returns the store's known counts of a key, or nil if there are none.
func (s *keyspace) synced(e entry) leaparray.Counter { return counterAt(&s.arena, e.synced()) }

// view returns the synced and pending counts of an entry's key.
func (s *keyspace) view(e entry, l *leaparray.Ladder, now int64) leaparray.View {
	return leaparray.View{Ladder: l, A: s.synced(e), B: s.pending(e), Now: now}
}

// count counts n events of a moment as pending. A negative n takes events back.
func (s *keyspace) count(e entry, l *leaparray.Ladder, ts, n, now int64) {
	v := s.view(e, l, now)
	if n < 0 {
		s.takeAt(e, &v, ts, -n)
		return
	}
	s.addTo(e, &v, v.Cell(ts), n)
}

// takeAt takes n back from the buckets of one moment, but no more than they hold.
func (s *keyspace) takeAt(e entry, v *leaparray.View, ts, n int64) {
	var taken []leaparray.Cell
	v.At(ts, n, func(at leaparray.Stretch, n int64) {
		taken = append(taken, leaparray.Cell{Stretch: at, N: n})
	})
	s.take(e, v, taken)
}

// takeNewest takes n back from the newest buckets that are not empty.
func (s *keyspace) takeNewest(e entry, l *leaparray.Ladder, now, n int64) {
	v := s.view(e, l, now)
	var taken []leaparray.Cell
	v.Newest(n, func(at leaparray.Stretch, n int64) {
		taken = append(taken, leaparray.Cell{Stretch: at, N: n})
	})
	s.take(e, &v, taken)
}

func (s *keyspace) take(e entry, v *leaparray.View, taken []leaparray.Cell) {
	for _, c := range taken {
		s.addTo(e, v, c.Stretch, -c.N)
	}
}

// markAhead records that an event lies ahead of the present.
func (s *keyspace) markAhead(e entry, l *leaparray.Ladder, ts, now int64) {
	beyond, v := l.Beyond(ts), s.view(e, l, now)
	if mark, ok := l.Newest(v.A); ok && mark.Start >= beyond.Start {
		return
	}
	c := s.change(e, &v)
	_, folded := c.v.Mark(&c.v.B, &c.alloc, beyond)
	e.setFolded(folded || e.hasFolded())
	s.close(c, 0)
}

// addPending adds n to one pending bucket.
func (s *keyspace) addPending(e entry, l *leaparray.Ladder, at leaparray.Stretch, n int64) {
	v := s.view(e, l, s.clock.now())
	s.addTo(e, &v, at, n)
}

// addTo is addPending for an entry with this view, which it keeps up to date.
func (s *keyspace) addTo(e entry, v *leaparray.View, at leaparray.Stretch, n int64) {
	if ch, ok := v.Ladder.Add(v.B, at, n); ok {
		s.pendingBuckets += int64(ch)
		return
	}
	c := s.change(e, v)
	_, folded := c.v.Put(&c.v.B, &c.alloc, at, n)
	e.setFolded(folded || e.hasFolded())
	s.close(c, n)
	*v = c.v
}

// subtractPending removes an acknowledged count from a pending bucket, or from the one that it has
// folded into. If the bucket has left every window in the meantime, it is gone already.
func (s *keyspace) subtractPending(e entry, l *leaparray.Ladder, b *Bucket) {
	pending, at, now := s.pending(e), b.Stretch, s.clock.now()
	if e.hasFolded() {
		at = l.Holder(pending, at, b.N, now)
	}
	if at.End() > l.Since(now) || l.Value(pending, at) != 0 {
		s.addPending(e, l, at, -b.N)
	}
}

// change holds the two counters of an entry while they may move or fold.
type change struct {
	e      entry
	v      leaparray.View
	alloc  counterAlloc
	before int   // pending cells
	events int64 // in these
}

// change begins to change the counters of an entry with this view.
func (s *keyspace) change(e entry, v *leaparray.View) *change {
	c := &s.changing
	c.e, c.v, c.before, c.events = e, *v, v.Ladder.Cells(v.B), v.Ladder.Total(v.B)
	c.alloc.arena, c.alloc.blocks = &s.arena, c.alloc.buffer[:0]
	if at := e.synced(); at != 0 {
		c.alloc.blocks = append(c.alloc.blocks, block{&v.A[0], at})
	}
	if at := e.pending(); at != 0 {
		c.alloc.blocks = append(c.alloc.blocks, block{&v.B[0], at})
	}
	return c
}

// close stores the new places of the counters. n is how many events were added to the pending one:
// if it has fewer, the rest has left every window. Events that folding drops from synced are in the
// store, so they are no loss.
func (s *keyspace) close(c *change, n int64) {
	at := arena.Ref(0)
	if len(c.v.A) > 0 {
		at = c.alloc.at(c.v.A)
	}
	c.e.setSynced(at)
	c.e.setPending(c.alloc.at(c.v.B))
	s.pendingBuckets += int64(c.v.Ladder.Cells(c.v.B) - c.before)
	s.expired += max(0, c.events+n-c.v.Ladder.Total(c.v.B))
}

// dropPending empties the pending counter and releases its block.
func (s *keyspace) dropPending(e entry) {
	releaseCounter(&s.arena, e.pending())
	e.setPending(0)
	at := e.inlineAt()
	e[at], e[at+1] = 0, 0
}

// clearPending drops all pending counts of an entry.
func (s *keyspace) clearPending(e entry, l *leaparray.Ladder) {
	s.pendingBuckets -= int64(l.Cells(s.pending(e)))
	s.dropPending(e)
}

// tidyPending releases the memory of a pending counter that holds nothing.
func (s *keyspace) tidyPending(e entry, l *leaparray.Ladder) {
	if !l.Any(s.pending(e)) && !s.owesMark(e, l) {
		s.dropPending(e)
	}
}

// owesMark reports whether the store does not know yet that events lie ahead of the present.
func (s *keyspace) owesMark(e entry, l *leaparray.Ladder) bool {
	mark, marked := l.Marked(s.pending(e))
	newest, ok := l.Newest(s.synced(e))
	return marked && (!ok || newest.Start < mark.Start)
}

// addSynced adds to a bucket of the synced counts. If both are zero, it marks that events lie ahead
// of the present.
func (s *keyspace) addSynced(e entry, l *leaparray.Ladder, at leaparray.Stretch, n int64) {
	v := s.view(e, l, s.clock.now())
	if _, ok := l.Add(v.A, at, n); ok && n != 0 {
		return
	}
	c, folded := s.change(e, &v), false
	switch {
	case n != 0:
		_, folded = c.v.Put(&c.v.A, &c.alloc, at, n)
	case at.Width == l.Width(0) && l.Value(v.A, at) == 0:
		_, folded = c.v.Mark(&c.v.A, &c.alloc, at)
	}
	e.setFolded(folded || e.hasFolded())
	s.close(c, 0)
}

// setSynced records the store's counts of some buckets after a round, where they are valid counts.
// It reports whether they were as expected: the previously known counts plus the round's. With
// compared, the former are the counts known when the round was cut, because the buckets may have
// folded since.
//
// If the store holds less, it may have the events in other buckets, because another writer has
// folded them. If it holds more, the events may be in other buckets here. Until the key is read
// again, the sum over them is not less than the known count, and not more than the store's.
//
// The change of each bucket is determined first, because they may fold on the way.
func (s *keyspace) setSynced(e entry, adds []Bucket, compared, added bool) (expected bool) {
	l, synced := s.ladder(e), s.synced(e)
	changes := s.changes[:0]
	expected = true
	for i := range adds {
		b := &adds[i]
		held, n := b.known, b.N
		if !compared {
			held = l.Value(synced, b.Stretch)
		}
		if !added {
			n = 0
		}
		stored := countable(l, synced, held, b.Stored)
		more := stored - held - n
		if expected = expected && stored == b.Stored && more == 0; more > 0 {
			n += max(0, more-l.Overlapping(synced, b.Stretch))
		}
		changes = append(changes, n)
	}
	for i, n := range changes {
		at := adds[i].Stretch
		if held := l.Value(s.synced(e), at); n < -held {
			s.takeFolded(e, l, at, -held-n)
			n = -held
		}
		if n != 0 || adds[i].N == 0 {
			s.addSynced(e, l, at, n)
		}
	}
	s.changes = changes
	return expected
}

// takeFolded takes n from the bucket that another one has folded into, but no more than it holds.
func (s *keyspace) takeFolded(e entry, l *leaparray.Ladder, at leaparray.Stretch, n int64) {
	into := l.Holder(s.synced(e), at, n, s.clock.now())
	if n = min(n, l.Value(s.synced(e), into)); n > 0 {
		s.addSynced(e, l, into, -n)
	}
}

// fold folds the buckets of an entry, and returns the moment from which on they stay unchanged.
func (s *keyspace) fold(e entry, l *leaparray.Ladder, now int64) (exactFrom int64) {
	v := s.view(e, l, now)
	exactFrom = v.ExactFrom()
	c := s.change(e, &v)
	c.v.Fold(&c.alloc, exactFrom)
	s.close(c, 0)
	return exactFrom
}

// replaceSynced replaces all synced buckets of a key with loaded.
func (s *keyspace) replaceSynced(e entry, l *leaparray.Ladder, loaded []Bucket) {
	s.dropSynced(e)
	lacks := false
	for i := range loaded {
		lacks = lacks || loaded[i].N < 0
	}
	if lacks {
		cells := leaparray.Offset(cellsOf(loaded))
		loaded = loaded[:0:0]
		for _, c := range cells {
			if c.N >= 0 {
				loaded = append(loaded, Bucket{Stretch: c.Stretch, N: c.N})
			}
		}
	}
	for i := range loaded {
		b := &loaded[i]
		s.addSynced(e, l, b.Stretch, countable(l, s.synced(e), 0, b.N))
	}
}

// dropSynced drops the synced counts of a key.
func (s *keyspace) dropSynced(e entry) {
	releaseCounter(&s.arena, e.synced())
	e.setSynced(0)
}

// appendSynced appends everything that another counter, or the store, needs to hold the same counts
// as synced.
func (s *keyspace) appendSynced(to []Bucket, e entry) []Bucket {
	l, synced := s.ladder(e), s.synced(e)
	l.Each(synced, func(at leaparray.Stretch, n int64) bool {
		to = append(to, Bucket{Stretch: at, N: n})
		return true
	})
	if mark, ok := l.Marked(synced); ok {
		to = append(to, Bucket{Stretch: mark})
	}
	return to
}

// eachSynced calls fn for every key with synced counts, with their sum.
func (s *keyspace) eachSynced(fn func(ns, key []byte, n int64)) {
	for _, e := range s.all() {
		if sum := s.ladder(e).Total(s.synced(e)); sum != 0 {
			ns, key := e.name()
			fn(ns, key, sum)
		}
	}
}

package syncer

import (
	"cmp"

	"twotier.dev/twotier/leaparray"
)

// pending returns the counts that the store has not acknowledged. It is never nil: even an empty
// counter may grow.
func (s *keyspace) pending(e entry) leaparray.Counter {
	if r := e.pending(); r != 0 {
		return counterAt(&s.arena, r)
	}
	return e.inline()
}

// synced returns what the store is known to hold of a key, or nil if nothing.
func (s *keyspace) synced(e entry) leaparray.Counter { return counterAt(&s.arena, e.synced()) }

// count adds n to the pending bucket of every level that still keeps the time of the event. If late
// is false, the time is so recent that all levels do. A negative n is taken back.
func (s *keyspace) count(e entry, l *leaparray.Ladder, at *leaparray.Stamp, n int64, late bool) {
	if n < 0 {
		s.takeAt(e, l, at, -n)
		return
	}
	pending := s.pending(e)
	for level := range l.Len() {
		if late && at[level] < l.Head(s.synced(e), level)-l.Keep(level) {
			continue
		}
		ch, ok := l.Add(pending, level, at[level], n)
		if !ok {
			pending = s.growPending(e, l, level, at[level], n)
			ch, _ = l.Add(pending, level, at[level], n)
		}
		s.pendingBuckets += int64(ch.Live)
		s.expired += int64(ch.Expired)
	}
}

// takeAt takes n back from the buckets of one moment, but no more than the finest level that has
// all of that time holds there: every level loses the same events. A bucket of which others have
// taken back too much stays as it is.
func (s *keyspace) takeAt(e entry, l *leaparray.Ladder, at *leaparray.Stamp, n int64) {
	v := leaparray.View{Ladder: l, A: s.synced(e), B: s.pending(e)}
	now := s.clock.now()
	if s.space(e).aging {
		v.Now = now
	}
	held := func(level int) int64 { return max(0, v.Value(level, at[level])) }
	for level := range l.Len() {
		if v.Has(level, at[level], now) {
			n = min(n, held(level))
			break
		}
	}
	for level := range l.Len() {
		if d := min(n, held(level)); d > 0 {
			s.addPending(e, l, level, at[level], -d)
			v.B = s.pending(e) // it may have moved
		}
	}
}

// markAhead records that an event lies ahead of the present.
func (s *keyspace) markAhead(e entry, l *leaparray.Ladder, ts int64) {
	pending, beyond := s.pending(e), l.Beyond(ts)
	if beyond <= l.Head(s.synced(e), 0) {
		return
	}
	ch, ok := l.Mark(pending, 0, beyond)
	if !ok {
		ch, _ = l.Mark(s.growPending(e, l, 0, beyond, 1), 0, beyond)
	}
	s.pendingBuckets += int64(ch.Live)
	s.expired += int64(ch.Expired)
}

// takeNewest takes n back from the newest buckets of each level that hold something. As every level
// counts the same events, each loses the newest ones. Buckets that no window can see any more keep
// what they hold. What is taken is pending in those very buckets, and stays there whatever is
// counted before it is flushed.
func (s *keyspace) takeNewest(e entry, l *leaparray.Ladder, now, n int64) {
	for level := range l.Len() {
		v := leaparray.View{Ladder: l, A: s.synced(e), B: s.pending(e)}
		head := v.Head(level)
		oldest := max(head, l.Index(level, now)) - l.Keep(level)
		for left, idx := n, head+1; left > 0; {
			held := int64(0)
			if idx, held = v.Before(level, idx); idx < oldest {
				break
			}
			d := min(left, held)
			s.addPending(e, l, level, idx, -d)
			v.B = s.pending(e) // it may have moved
			left -= d
		}
	}
}

// addPending counts n in one pending bucket. A bucket that is further behind the newest of its
// level than the level keeps is left alone.
func (s *keyspace) addPending(e entry, l *leaparray.Ladder, level int, idx, n int64) {
	pending := s.pending(e)
	if e.hasPending() && idx < l.Head(pending, level)-l.Keep(level) {
		return
	}
	ch, ok := l.Add(pending, level, idx, n)
	if !ok {
		ch, _ = l.Add(s.growPending(e, l, level, idx, n), level, idx, n)
	}
	s.pendingBuckets += int64(ch.Live)
	s.expired += int64(ch.Expired)
}

// subtractPending removes what was acknowledged from a pending bucket. If the bucket has left every
// window in the meantime, it is gone already. It never was there if another counter has cut it,
// whose ladder has a level that is not in this one's.
func (s *keyspace) subtractPending(e entry, l *leaparray.Ladder, b *Bucket) {
	if level := l.LevelOf(b.Level); level >= 0 && e.hasPending() {
		s.addPending(e, l, level, b.Index, -b.N)
	}
}

func (s *keyspace) growPending(e entry, l *leaparray.Ladder, level int, idx,
	n int64) leaparray.Counter {
	to := counterAlloc{arena: &s.arena}
	c := l.Grow(s.pending(e), &to, level, idx, n)
	s.dropPending(e)
	e.setPending(to.at)
	return c
}

// dropPending empties the pending counter and releases its block.
func (s *keyspace) dropPending(e entry) {
	releaseCounter(&s.arena, e.pending())
	e.setPending(0)
	e[e.inlineAt()] = 0
}

// clearPending forgets everything pending of an entry.
func (s *keyspace) clearPending(e entry, l *leaparray.Ladder) {
	l.Each(s.pending(e), func(int, int64, int64) bool {
		s.pendingBuckets--
		return true
	})
	s.dropPending(e)
}

// tidyPending releases the memory of a pending counter once it contains nothing but what was
// flushed, which is this many buckets. What was counted since may have pushed those out, so their
// number says little about an entry that is dirty again.
func (s *keyspace) tidyPending(e entry, l *leaparray.Ladder, flushed int) {
	pending := s.pending(e)
	keep := false
	l.Each(pending, func(int, int64, int64) bool {
		keep = true
		return false
	})
	more := e.has(flagDirty|flagParked) || l.Buckets(pending) > flushed
	for level := 0; !keep && more && level < l.Len(); level++ {
		_, keep = s.unsentZero(e, l, level)
	}
	if !keep {
		s.dropPending(e)
	}
}

// unsentZero reports whether the newest bucket of a level came to zero before the store heard of
// it, and which one that is. The store is told of it all the same: otherwise the buckets that were
// dropped because of it would seem never to have existed.
func (s *keyspace) unsentZero(e entry, l *leaparray.Ladder, level int) (idx int64, ok bool) {
	pending := s.pending(e)
	idx = l.Head(pending, level)
	return idx, idx > l.Head(s.synced(e), level) && l.Sum(pending, level, idx, idx) == 0
}

// setSynced sets a bucket to what the store holds, as far as that can be a count, and returns the
// value it was set to. A zero may be the newest bucket of its level, which says how far back the
// level is complete.
func (s *keyspace) setSynced(e entry, l *leaparray.Ladder, level int, idx, stored int64) (n int64) {
	c := s.synced(e)
	n = countable(l, c, level, idx, stored)
	d := n - l.Sum(c, level, idx, idx)
	set := func() bool {
		if n == 0 && d == 0 {
			_, ok := l.Mark(c, level, idx)
			return ok
		}
		_, ok := l.Add(c, level, idx, d)
		return ok
	}
	if set() {
		return n
	}
	to := counterAlloc{arena: &s.arena}
	old := e.synced()
	c = l.Grow(c, &to, level, idx, cmp.Or(d, 1))
	releaseCounter(&s.arena, old)
	e.setSynced(to.at)
	set()
	return n
}

// replaceSynced replaces all synced buckets of a key with loaded.
func (s *keyspace) replaceSynced(e entry, l *leaparray.Ladder, loaded []Bucket) {
	s.dropSynced(e)
	for i := range loaded {
		b := &loaded[i]
		if level := l.LevelOf(b.Level); level >= 0 {
			s.setSynced(e, l, level, b.Index, b.N)
		}
	}
}

// dropSynced forgets what the store holds of a key.
func (s *keyspace) dropSynced(e entry) {
	releaseCounter(&s.arena, e.synced())
	e.setSynced(0)
}

// appendSynced appends everything that another counter, or the store, has to be told in order to
// hold what synced does.
func (s *keyspace) appendSynced(to []Bucket, e entry) []Bucket {
	l := s.ladder(e)
	l.EachKept(s.synced(e), func(level int, idx, n int64) bool {
		to = append(to, Bucket{Level: l.ID(level), Index: idx, N: n})
		return true
	})
	return to
}

// eachSynced calls fn for every key that the store is known to have counts of, with their sum on
// the coarsest level.
func (s *keyspace) eachSynced(fn func(ns, key []byte, n int64)) {
	for _, e := range s.all() {
		counter := s.synced(e)
		if counter == nil {
			continue
		}
		if sum := coarsestSum(s.ladder(e), counter); sum != 0 {
			ns, key := e.name()
			fn(ns, key, sum)
		}
	}
}

// coarsestSum returns the sum of all buckets of the coarsest level.
func coarsestSum(l *leaparray.Ladder, c leaparray.Counter) (sum int64) {
	l.Each(c, func(level int, _, n int64) bool {
		if level == l.Len()-1 {
			sum += n
		}
		return true
	})
	return sum
}

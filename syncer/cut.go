package syncer

// cutPending adds an entry's pending buckets to a round. fresh reports that one of them, or the
// last one, is in a bucket of the coarsest level of which the store has nothing, and listed that
// the key need not be listed because of those.
func (s *keyspace) cutPending(r *Round, e entry) (fresh, listed bool) {
	l, pending, synced := s.ladder(e), s.pending(e), s.synced(e)
	first, known := len(r.buckets), false
	listed = true
	l.Each(pending, func(level int, idx, n int64) bool {
		r.buckets = append(r.buckets, Bucket{Level: l.ID(level), Index: idx, N: n})
		if level < l.Len()-1 {
			return true
		}
		if known = l.Sum(synced, level, idx, idx) != 0; !known {
			fresh, listed = true, listed && inList(l, synced, idx)
		}
		return true
	})
	if l.Buckets(pending) > len(r.buckets)-first {
		for level := range l.Len() {
			if idx, owed := s.unsentZero(e, l, level); owed {
				r.buckets = append(r.buckets, Bucket{Level: l.ID(level), Index: idx})
			}
		}
	}
	return fresh || !known, fresh && listed
}

// cutExpired adds to a round the buckets that expire in the store because of an entry's pending
// buckets.
func (s *keyspace) cutExpired(r *Round, e entry) {
	if !e.hasPending() || e.synced() == 0 {
		return
	}
	l, pending := s.ladder(e), s.pending(e)
	for level := range l.Len() {
		l.Expire(s.synced(e), level, l.Head(pending, level), func(idx int64) {
			r.buckets = append(r.buckets, Bucket{Level: l.ID(level), Index: idx})
		})
	}
}

package leaparray

// Counter holds the buckets of one key in a flat block of words. A nil or empty block is an empty
// counter. Its layout:
//
//	word 0     bits 0-7: mask of the dense levels; bits 8-31: number of sparse buckets;
//	           bits 32-63 belong to the Allocator and may be set
//	rings      one for each dense level, finest first
//	sparse     one word per bucket: level (3 bits), index (37 bits), count (24 bits, signed);
//	           the rest is free
//
// A level becomes dense when more than half of its buckets are live or a count does not fit in 24
// bits.
type Counter []uint64

const (
	countBits  = 24
	indexBits  = 37
	maxSparse  = 1<<(countBits-1) - 1
	indexMask  = 1<<indexBits - 1
	levelShift = countBits + indexBits

	sparseLenMask = 1<<24 - 1
)

// Change is what an operation did to a counter.
type Change struct {
	// Live is the change in the number of non-zero buckets.
	Live int
	// Expired is the number of non-zero buckets that fell behind the newest one and are gone. They
	// are included in Live.
	Expired int
}

func tagOf(level int, idx int64) uint64 {
	return uint64(level)<<indexBits | uint64(idx)&indexMask
}

func bucketOf(word uint64) (level int, idx, n int64) {
	return int(word >> levelShift), int64(word >> countBits & indexMask), sparseCount(word)
}

func sparseCount(word uint64) int64 { return int64(word<<(64-countBits)) >> (64 - countBits) }

func fitsSparse(n int64) bool { return n >= -maxSparse && n <= maxSparse }

func (c Counter) mask() int { return int(c[0] & 0xff) }

func (c Counter) sparseLen() int { return int(c[0] >> 8 & sparseLenMask) }

func (c Counter) setSparseLen(n int) { c[0] = c[0]&^(sparseLenMask<<8) | uint64(n)<<8 }

// sparse returns the sparse buckets, oldest entry first.
func (l *Ladder) sparse(c Counter) []uint64 {
	at := int(l.start[c.mask()][len(l.levels)])
	return c[at : at+c.sparseLen()]
}

func (l *Ladder) ring(c Counter, level int) ring {
	at := int(l.start[c.mask()][level])
	return ring(c[at : at+ringHead+l.slots[level]])
}

func (c Counter) dense(level int) bool { return c[0]&(1<<level) != 0 }

// Add counts n in bucket idx of a level. If the block has no room, Add changes nothing and reports
// false: call [Ladder.Grow], then Add again. Adding to a bucket too far behind the newest one of
// its level has no effect, because no window can be read from it. Neither has adding nothing, not
// even to a bucket newer than all others (see [Ladder.Mark]).
func (l *Ladder) Add(c Counter, level int, idx, n int64) (ch Change, ok bool) {
	if n == 0 || len(c) == 0 {
		return Change{}, n == 0
	}
	if c.dense(level) {
		return l.addDense(c, level, idx, n), true
	}
	tag := tagOf(level, idx)
	entries := l.sparse(c)
	for i := len(entries) - 1; i >= 0; i-- {
		if entries[i]>>countBits == tag {
			return l.addSparse(entries, i, n)
		}
	}
	return l.insert(c, entries, level, idx, n)
}

func (l *Ladder) addDense(c Counter, level int, idx, n int64) (ch Change) {
	at := int(l.start[c[0]&0xff][level])
	r := ring(c[at : at+ringHead+l.slots[level]])
	if idx == r.head() { // nearly always
		before := r.addNewest(n)
		return Change{Live: liveChange(before, before+n)}
	}
	if idx > r.head() {
		ch.Expired = r.advance(idx)
		ch.Live = -ch.Expired
	}
	back := r.head() - idx
	if back > l.keep[level] {
		return ch
	}
	before := r.total(back) - r.total(back+1)
	r.add(back, n)
	ch.Live += liveChange(before, before+n)
	return ch
}

// liveChange returns the change in the number of non-zero buckets.
func liveChange(before, after int64) int {
	switch {
	case before == 0 && after != 0:
		return 1
	case before != 0 && after == 0:
		return -1
	}
	return 0
}

// Mark makes bucket idx the newest of its level without counting anything, unless the level has a
// newer one. Buckets that fall behind it are gone. Mark reports false as Add does.
func (l *Ladder) Mark(c Counter, level int, idx int64) (ch Change, ok bool) {
	if idx <= l.Head(c, level) {
		return ch, true
	}
	if ch, ok = l.Add(c, level, idx, 1); ok {
		back, _ := l.Add(c, level, idx, -1)
		ch.Live += back.Live
	}
	return ch, ok
}

// Beyond returns the bucket of the finest level that follows the one of a moment. Whoever counts an
// event ahead of the present marks it: until the present has reached it, the bucket of the present
// may hold events that lie ahead.
func (l *Ladder) Beyond(ms int64) (idx int64) { return l.Index(0, ms) + 1 }

// Buckets returns an upper bound on the number of buckets in a counter, zero ones included.
func (l *Ladder) Buckets(c Counter) (n int) {
	if len(c) == 0 {
		return 0
	}
	for level := range l.levels {
		if c.dense(level) {
			n += l.slots[level]
		}
	}
	return n + c.sparseLen()
}

// addSparse keeps a bucket whose count becomes zero: it may be the newest one, and the newest index
// must not go back.
func (l *Ladder) addSparse(entries []uint64, i int, n int64) (ch Change, ok bool) {
	before := sparseCount(entries[i])
	after := before + n
	if !fitsSparse(after) {
		return ch, false
	}
	entries[i] = entries[i]>>countBits<<countBits | uint64(after)&(1<<countBits-1)
	return Change{Live: liveChange(before, after)}, true
}

// insert appends a bucket that the level does not have yet, after dropping those it pushes out.
func (l *Ladder) insert(c Counter, entries []uint64, level int, idx, n int64) (ch Change, ok bool) {
	s := l.scan(entries, level, idx)
	if idx < s.head-l.keep[level] {
		return ch, true
	}
	at := int(l.start[c.mask()][len(l.levels)])
	if !fitsSparse(n) || int64(s.buckets-s.stale) >= l.keep[level]/2 ||
		at+len(entries)+1-s.stale > len(c) {
		return ch, false
	}
	if s.stale > 0 {
		l.dropStale(c, level, idx-l.keep[level])
	}
	end := at + c.sparseLen()
	c[end] = tagOf(level, idx)<<countBits | uint64(n)&(1<<countBits-1)
	c.setSparseLen(end - at + 1)
	return Change{Live: 1 - s.staleLive, Expired: s.staleLive}, true
}

// sparseScan is what insert needs to know of a sparse level.
type sparseScan struct {
	head    int64 // the newest index
	buckets int
	// stale buckets would fall behind a new one; staleLive of them are not zero.
	stale, staleLive int
}

func (l *Ladder) scan(entries []uint64, level int, idx int64) sparseScan {
	s := sparseScan{head: -1}
	for _, e := range entries {
		if int(e>>levelShift) != level {
			continue
		}
		i := int64(e >> countBits & indexMask)
		s.head = max(s.head, i)
		s.buckets++
		if i < idx-l.keep[level] {
			s.stale++
			if sparseCount(e) != 0 {
				s.staleLive++
			}
		}
	}
	return s
}

// dropStale removes the sparse buckets of a level that are older than oldest.
func (l *Ladder) dropStale(c Counter, level int, oldest int64) {
	entries := l.sparse(c)
	kept := entries[:0]
	for _, e := range entries {
		if lv, i, _ := bucketOf(e); lv != level || i >= oldest {
			kept = append(kept, e)
		}
	}
	c.setSparseLen(len(kept))
}

// Expire drops the buckets of a level that are more than Keep buckets behind head, and calls fn for
// each one that is not zero.
func (l *Ladder) Expire(c Counter, level int, head int64, fn func(idx int64)) {
	if len(c) == 0 {
		return
	}
	oldest := head - l.keep[level]
	if !c.dense(level) {
		for _, e := range l.sparse(c) {
			if lv, i, n := bucketOf(e); lv == level && i < oldest && n != 0 {
				fn(i)
			}
		}
		l.dropStale(c, level, oldest)
		return
	}
	r := l.ring(c, level)
	for i := r.head() - l.keep[level]; i < min(oldest, r.head()+1); i++ {
		if r.sum(i, i) != 0 {
			fn(i)
		}
	}
	if head > r.head() {
		r.advance(head)
	}
}

// Head returns the index of the newest bucket of a level, or -1 if it has none.
func (l *Ladder) Head(c Counter, level int) int64 {
	if len(c) == 0 {
		return -1
	}
	if c.dense(level) {
		return l.ring(c, level).head()
	}
	return l.scan(l.sparse(c), level, 0).head
}

// hasFrom reports whether one of the levels from first on has a bucket, which may be zero, that
// begins at a time or later.
func (l *Ladder) hasFrom(c Counter, first int, ms int64) bool {
	if len(c) == 0 {
		return false
	}
	for level := first; level < len(l.levels); level++ {
		if c.dense(level) && l.ring(c, level).head()*l.width[level] >= ms {
			return true
		}
	}
	for _, e := range l.sparse(c) {
		if level, i, _ := bucketOf(e); level >= first && i*l.width[level] >= ms {
			return true
		}
	}
	return false
}

// before returns the index of the newest bucket of a level that is older than idx and not zero, or
// -1 if there is none.
func (l *Ladder) before(c Counter, level int, idx int64) int64 {
	if len(c) == 0 {
		return -1
	}
	if c.dense(level) {
		return l.ring(c, level).before(idx)
	}
	newest := int64(-1)
	for _, e := range l.sparse(c) {
		if lv, i, n := bucketOf(e); lv == level && i < idx && n != 0 {
			newest = max(newest, i)
		}
	}
	return newest
}

// Sum adds up the buckets lo to hi of a level.
func (l *Ladder) Sum(c Counter, level int, lo, hi int64) (sum int64) {
	if len(c) == 0 {
		return 0
	}
	if c.dense(level) {
		return l.ring(c, level).sum(lo, hi)
	}
	for _, e := range l.sparse(c) {
		if lv, i, n := bucketOf(e); lv == level && i >= lo && i <= hi {
			sum += n
		}
	}
	return sum
}

// ends is Sum that also returns the first and the last bucket on their own.
func (l *Ladder) ends(c Counter, level int, lo, hi int64) (sum, first, last int64) {
	if len(c) == 0 {
		return 0, 0, 0
	}
	if c.dense(level) {
		return l.ring(c, level).ends(lo, hi)
	}
	for _, e := range l.sparse(c) {
		lv, i, n := bucketOf(e)
		if lv != level || i < lo || i > hi {
			continue
		}
		sum += n
		if i == lo {
			first += n
		}
		if i == hi {
			last += n
		}
	}
	return sum, first, last
}

// Each calls fn for every non-zero bucket until fn returns false.
func (l *Ladder) Each(c Counter, fn func(level int, idx, n int64) bool) {
	l.each(c, func(level int, idx, n int64) bool { return n == 0 || fn(level, idx, n) })
}

// EachKept is Each that also calls fn for a level's newest bucket when it is zero. Adding or
// marking what it reports gives another counter the same content.
func (l *Ladder) EachKept(c Counter, fn func(level int, idx, n int64) bool) {
	more := true
	l.Each(c, func(level int, idx, n int64) bool {
		more = fn(level, idx, n)
		return more
	})
	for level := 0; more && level < len(l.levels); level++ {
		if head := l.Head(c, level); head >= 0 && l.Sum(c, level, head, head) == 0 {
			more = fn(level, head, 0)
		}
	}
}

// each calls fn for every bucket, including sparse ones that are zero.
func (l *Ladder) each(c Counter, fn func(level int, idx, n int64) bool) {
	if len(c) == 0 {
		return
	}
	for level := range l.levels {
		if !c.dense(level) {
			continue
		}
		r := l.ring(c, level)
		for i := r.head() - l.keep[level]; i <= r.head(); i++ {
			if n := r.sum(i, i); n != 0 && !fn(level, i, n) {
				return
			}
		}
	}
	for _, e := range l.sparse(c) {
		if level, i, n := bucketOf(e); !fn(level, i, n) {
			return
		}
	}
}

package leaparray

// Counter holds the buckets of one key in a flat block of words. A nil or empty block is an empty counter. Its layout:
//
//	word 0        bits 0-7: mask of the dense levels; bits 8-31: number of sparse buckets
//	rings         one for each dense level, finest first
//	sparse        one word a bucket: level (3 bits), index (37 bits), count (24 bits, signed); any rest is free
//
// A level turns dense when more than half of its buckets live or a count does not fit 24 bits.
type Counter []uint64

const (
	countBits  = 24
	indexBits  = 37
	maxSparse  = 1<<(countBits-1) - 1
	indexMask  = 1<<indexBits - 1
	levelShift = countBits + indexBits
)

// Change says what an operation did to a counter.
type Change struct {
	// Live is by how much the number of buckets that are not zero has changed.
	Live int
	// Expired is how many buckets that were not zero fell behind the newest one and are gone. Live includes them.
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

// Empty reports whether the counter holds no bucket. A dense level counts as one even if all of it is zero.
func (c Counter) Empty() bool { return len(c) == 0 || c[0] == 0 }

func (c Counter) mask() int { return int(c[0] & 0xff) }

func (c Counter) sparseLen() int { return int(c[0] >> 8) }

func (c Counter) setSparseLen(n int) { c[0] = c[0]&0xff | uint64(n)<<8 }

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

// Add counts n in bucket idx of a level. It reports false, with nothing changed, if the block has no room for it: then
// [Ladder.Grow] makes some and Add is called again. A bucket that lies too far behind the newest one of its level is
// left alone, as no window can be read from it.
func (l *Ladder) Add(c Counter, level int, idx, n int64) (ch Change, ok bool) {
	if len(c) == 0 {
		return Change{}, n == 0
	}
	if c.dense(level) {
		return l.addDense(c, level, idx, n), true
	}
	tag := tagOf(level, idx)
	entries := l.sparse(c)
	for i := len(entries) - 1; i >= 0; i-- {
		if entries[i]>>countBits == tag {
			return l.addSparse(c, entries, i, n)
		}
	}
	return l.insert(c, entries, level, idx, n)
}

func (l *Ladder) addDense(c Counter, level int, idx, n int64) (ch Change) {
	r := l.ring(c, level)
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
	switch {
	case before == 0 && n != 0:
		ch.Live++
	case before != 0 && before == -n:
		ch.Live--
	}
	return ch
}

func (l *Ladder) addSparse(c Counter, entries []uint64, i int, n int64) (ch Change, ok bool) {
	sum := sparseCount(entries[i]) + n
	if !fitsSparse(sum) {
		return ch, false
	}
	if sum == 0 {
		copy(entries[i:], entries[i+1:])
		c.setSparseLen(len(entries) - 1)
		return Change{Live: -1}, true
	}
	entries[i] = entries[i]>>countBits<<countBits | uint64(sum)&(1<<countBits-1)
	return ch, true
}

// insert appends a bucket that the level does not have yet, after dropping those that fall behind it.
func (l *Ladder) insert(c Counter, entries []uint64, level int, idx, n int64) (ch Change, ok bool) {
	if n == 0 {
		return ch, true
	}
	head, live, stale := l.scan(entries, level, idx)
	if idx < head-l.keep[level] {
		return ch, true
	}
	at := int(l.start[c.mask()][len(l.levels)])
	if !fitsSparse(n) || int64(live-stale) >= l.keep[level]/2 || at+len(entries)+1-stale > len(c) {
		return ch, false
	}
	if stale > 0 {
		l.dropStale(c, level, idx-l.keep[level])
	}
	end := at + c.sparseLen()
	c[end] = tagOf(level, idx)<<countBits | uint64(n)&(1<<countBits-1)
	c.setSparseLen(end - at + 1)
	return Change{Live: 1 - stale, Expired: stale}, true
}

// scan returns a level's newest index, how many of its buckets there are, and how many would fall behind idx.
func (l *Ladder) scan(entries []uint64, level int, idx int64) (head int64, live, stale int) {
	head = -1
	for _, e := range entries {
		if int(e>>levelShift) != level {
			continue
		}
		i := int64(e >> countBits & indexMask)
		head = max(head, i)
		live++
		if i < idx-l.keep[level] {
			stale++
		}
	}
	return head, live, stale
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

// Head returns the index of the newest bucket of a level, -1 if it has none.
func (l *Ladder) Head(c Counter, level int) int64 {
	if len(c) == 0 {
		return -1
	}
	if c.dense(level) {
		return l.ring(c, level).head()
	}
	head, _, _ := l.scan(l.sparse(c), level, 0)
	return head
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

// Each calls fn for every bucket that is not zero, until it returns false.
func (l *Ladder) Each(c Counter, fn func(level int, idx, n int64) bool) {
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

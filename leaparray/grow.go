package leaparray

// Allocator allocates the blocks of counters.
type Allocator interface {
	// Alloc returns a block of exactly this many words. It is zeroed, except for bits 32 to 63 of
	// the first word, which are the Allocator's.
	Alloc(words int) Counter
}

// Heap is the [Allocator] that uses the Go heap.
type Heap struct{}

// Alloc makes a slice.
func (Heap) Alloc(words int) Counter { return make(Counter, words) }

// Grow returns a copy of a counter, in a new block, that has room for adding n to bucket idx of a
// level. The old block is unchanged.
func (l *Ladder) Grow(c Counter, a Allocator, level int, idx, n int64) Counter {
	if len(c) == 0 {
		c = Counter{0}
	}
	mask := c.mask()
	sum := n + l.Sum(c, level, idx, idx)
	if !c.dense(level) && (!fitsSparse(sum) ||
		int64(l.scan(l.sparse(c), level, 0).buckets) >= l.keep[level]/2) {
		mask |= 1 << level
	}
	return l.copyTo(c, a, mask, len(l.levels), func(int, int64, int64) bool { return true })
}

// Compact returns a copy of a counter in the smallest block that holds it, without the buckets for
// which keep returns false. Levels of which less than an eighth are live become sparse. The old
// block is unchanged. The result is nil if no buckets are left.
func (l *Ladder) Compact(c Counter, a Allocator, keep func(level int, idx int64) bool) Counter {
	var live [MaxLevels]int64
	var wide, total int
	l.Each(c, func(level int, i, n int64) bool {
		if !keep(level, i) {
			return true
		}
		live[level]++
		total++
		if !fitsSparse(n) {
			wide |= 1 << level
		}
		return true
	})
	if total == 0 {
		return nil
	}
	mask := 0
	for level := range l.levels {
		if c.dense(level) && (wide&(1<<level) != 0 || live[level] > l.keep[level]/8) {
			mask |= 1 << level
		}
	}
	return l.copyTo(c, a, mask, 0, func(level int, i, n int64) bool {
		return n != 0 && keep(level, i)
	})
}

// copyTo copies the buckets that keep accepts into a new block whose dense levels are mask, with
// room for spare more sparse buckets plus a quarter of those it has.
func (l *Ladder) copyTo(c Counter, a Allocator, mask, spare int,
	keep func(level int, idx, n int64) bool) Counter {
	sparse := 0
	l.each(c, func(level int, i, n int64) bool {
		if mask&(1<<level) == 0 && keep(level, i, n) {
			sparse++
		}
		return true
	})
	if spare > 0 {
		spare = max(spare, sparse/4)
	}
	at := int(l.start[mask][len(l.levels)])
	to := a.Alloc(at + sparse + spare)
	to[0] |= uint64(mask)
	for level := range l.levels {
		if mask&(1<<level) != 0 {
			l.ring(to, level).reset(max(0, l.Head(c, level)))
		}
	}
	l.each(c, func(level int, i, n int64) bool {
		switch {
		case !keep(level, i, n):
		case mask&(1<<level) != 0:
			l.addDense(to, level, i, n)
		default:
			end := at + to.sparseLen()
			to[end] = tagOf(level, i)<<countBits | uint64(n)&(1<<countBits-1)
			to.setSparseLen(to.sparseLen() + 1)
		}
		return true
	})
	return to
}

package leaparray

import "math/bits"

// Allocator allocates the blocks of counters.
type Allocator interface {
	// Alloc returns a block of exactly this many words. It is zeroed, except for bits 32 to 63 of
	// the first word, which are the Allocator's.
	Alloc(words int) Counter
	// Release frees a block that another one has replaced. It may be nil.
	Release(c Counter)
}

// Heap is the [Allocator] that uses the Go heap.
type Heap struct{}

// Alloc makes a slice.
func (Heap) Alloc(words int) Counter { return make(Counter, words) }

// Release does nothing.
func (Heap) Release(Counter) {}

// spare is the least room for more sparse words in a block that has grown.
const spare = 2

// Grow returns a copy of a counter, in a new block, that has room for adding n to a cell. The old
// block is unchanged.
func (l *Ladder) Grow(c Counter, a Allocator, s Stretch, n int64) Counter {
	if len(c) == 0 {
		c = Counter{0, 0}
	}
	mask := c.mask()
	kind, _ := l.classify(c, s)
	if kind < foreign && !c.dense(kind) && (!fits(n+l.Value(c, s)) || l.crowded(c, kind)) {
		mask |= 1 << kind
	}
	room := spare
	if kind == foreign || !fits(n+l.Value(c, s)) {
		room = foreignWords
	}
	return l.copyTo(c, a, mask, room)
}

// Compact returns a copy of a counter in the smallest block that holds it. Levels with at most an
// eighth of their buckets live become sparse if all counts fit. The old block is unchanged. The
// result is nil if no cells are left.
func (l *Ladder) Compact(c Counter, a Allocator) Counter {
	if len(c) == 0 {
		return nil
	}
	mask := uint(0)
	for left := c.mask(); left != 0; left &= left - 1 {
		level, live := bits.TrailingZeros(left), int64(0)
		narrow := true
		l.ring(c, level).each(func(_, n int64) bool {
			live, narrow = live+1, fits(n)
			return narrow && live <= l.count[level]/8
		})
		if !narrow || live > l.count[level]/8 {
			mask |= 1 << level
		}
	}
	to := l.copyTo(c, a, mask, 0)
	if to.mask() == 0 && to.sparseLen()+to.foreignLen() == 0 {
		return nil
	}
	return to
}

// copyTo copies all cells that are not zero, and a mark, into a new block whose dense levels are
// mask, with room for more words: at least a quarter of the words that are not in rings.
func (l *Ladder) copyTo(c Counter, a Allocator, mask uint, more int) Counter {
	words := c.sparseLen() + c.foreignLen()*foreignWords
	for left := c.mask(); left != 0; left &= left - 1 {
		if mask&left&-left != 0 {
			continue
		}
		l.ring(c, bits.TrailingZeros(left)).each(func(_, n int64) bool {
			if words++; !fits(n) {
				words += foreignWords - 1
			}
			return true
		})
		words++ // a mark
	}
	for _, w := range l.sparse(c) {
		if kind := kindOf(w); kind < foreign && mask&(1<<kind) != 0 {
			words += foreignWords - 1 // if it is too old for the ring
		}
	}
	if more > 0 {
		more = max(more, words/4)
	}
	to := a.Alloc(int(l.start[mask][MaxLevels]) + words + more)
	if mask == c.mask() {
		to[0] |= c[0] & (1<<foreignShift - 1)
		copy(to[1:], c[1:int(l.start[mask][MaxLevels])+c.sparseLen()])
	} else {
		to[0] |= uint64(mask)
		l.copyCells(to, c)
	}
	for s, n := range l.foreignCells(c) {
		l.place(to, s, n)
	}
	if mark, ok := l.Marked(c); ok && l.newestIndex(to, 0) < l.index(0, mark.Start) {
		l.insertSparse(to, 0, l.index(0, mark.Start), 0)
	}
	return to
}

// copyCells copies the rings and the sparse cells to a counter that has other rings.
func (l *Ladder) copyCells(to, c Counter) {
	for left := to.mask(); left != 0; left &= left - 1 {
		level := bits.TrailingZeros(left)
		if c.dense(level) {
			copy(l.ring(to, level), l.ring(c, level))
		} else {
			l.ring(to, level)[0] = uint64(max(0, l.newestIndex(c, level)))
		}
	}
	for _, w := range l.sparse(c) {
		if kind := kindOf(w); kind < foreign && to.dense(kind) {
			l.place(to, l.stretchOf(w), countOf(w))
		} else {
			i, _ := l.findSparse(to, w>>countBits)
			l.insertWord(to, i, w)
		}
	}
	for left := c.mask() &^ to.mask(); left != 0; left &= left - 1 {
		width := l.width[bits.TrailingZeros(left)]
		l.ring(c, bits.TrailingZeros(left)).each(func(i, n int64) bool {
			l.place(to, Stretch{i * width, width}, n)
			return true
		})
	}
}

// place copies a cell to a counter that has room for it but does not have it.
func (l *Ladder) place(to Counter, s Stretch, n int64) {
	kind, pos := l.classify(to, s)
	placed := n == 0
	switch {
	case placed || kind == foreign:
	case kind < foreign && to.dense(kind):
		_, placed = l.addDense(to, kind, pos, n)
	default:
		placed = fits(n) && to.sparseLen() < l.most && l.insertSparse(to, kind, pos, n)
	}
	if !placed {
		l.addForeign(to, s, n)
	}
}

// Put counts n in a cell of one of the two counters of a view, and replaces that counter by one in
// a new block if the old one has no room. If the ring of a busy level would push out a bucket, or
// there are too many sparse cells, both counters fold. Put returns how many events were dropped
// because they had left every window, and whether the counters folded.
//
// If a wrong clock puts the new cell, or the cells in its way, ahead of the present, they don't
// fold, and the new cell becomes a foreign one.
func (v *View) Put(c *Counter, a Allocator, s Stretch, n int64) (dropped int64, folded bool) {
	_, ok := v.Ladder.Add(*c, s, n)
	for tries := 0; !ok; tries++ {
		if v.stuck(*c, s, tries) {
			old := *c
			*c = v.Ladder.copyTo(old, a, old.mask(), foreignWords)
			a.Release(old)
			v.Ladder.addForeign(*c, s, n)
			break
		}
		gone, too := v.makeRoom(c, a, s, n, tries)
		dropped, folded = dropped+gone, folded || too
		_, ok = v.Ladder.Add(*c, s, n)
	}
	return dropped, folded
}

// Mark records that events lie ahead of the present, in the bucket of the finest level before s. It
// works and returns as Put does, except that it marks nothing if cells in the way don't fold.
func (v *View) Mark(c *Counter, a Allocator, s Stretch) (dropped int64, folded bool) {
	for tries := 0; !v.Ladder.mark(*c, s) && !v.stuck(*c, s, tries); tries++ {
		gone, too := v.makeRoom(c, a, s, 0, tries)
		dropped, folded = dropped+gone, folded || too
	}
	return dropped, folded
}

// stuck reports whether a cell has no place even after makeRoom has done all it can.
func (v *View) stuck(c Counter, s Stretch, tries int) bool {
	return tries > 2 && v.Ladder.pushesOut(c, s)
}

// makeRoom makes room for a cell: in a new block, or by folding. The second fold includes every
// bucket that is old enough, the third one every cell. It returns how many events were dropped, and
// whether the counters folded.
func (v *View) makeRoom(c *Counter, a Allocator, s Stretch, n int64,
	tries int) (dropped int64, folded bool) {
	switch {
	case !v.Ladder.pushesOut(*c, s):
		old := *c
		*c = v.Ladder.Grow(old, a, s, n)
		a.Release(old)
		return 0, false
	case tries == 0:
		return v.Fold(a, v.ExactFrom()), true
	case tries == 1:
		return v.foldBoth(a, maxMoment, v.ExactFrom()), true
	default:
		return v.Fold(a, maxMoment), true
	}
}

// pushesOut reports whether there is no place for a cell unless others fold: in its ring, or among
// the sparse cells.
func (l *Ladder) pushesOut(c Counter, s Stretch) bool {
	if len(c) == 0 {
		return false
	}
	kind, pos := l.classify(c, s)
	if kind < foreign && c.dense(kind) {
		return l.ring(c, kind).wouldLose(pos)
	}
	return c.sparseLen() >= l.most && kind != foreign
}

// Fold moves every bucket that is too old for its width, and every cell of a millisecond, into the
// bucket of its age, if that bucket ends by exactFrom. With the result of [View.ExactFrom], the
// exact events from there on stay exact; with math.MaxInt64, every cell that is old enough folds.
// Fold drops the cells that have left every window, and returns the number of their events; the sum
// of all others stays the same. It replaces the counters of the view by new blocks where the old
// ones have no room.
//
// Both counters fold at the same time: if one takes back counts of the other, and only the first
// folded, a window could seem to have fewer events than it has.
func (v *View) Fold(a Allocator, exactFrom int64) (dropped int64) {
	return v.foldBoth(a, exactFrom, exactFrom)
}

// foldBoth is Fold with a moment of its own for the cells of a millisecond.
func (v *View) foldBoth(a Allocator, bucketsTo, momentsTo int64) (dropped int64) {
	var buffer [sweepBuffer]Cell
	for _, c := range []*Counter{&v.A, &v.B} {
		if len(*c) == 0 {
			continue
		}
		f := folding{v.Ladder.ages(v.Now), bucketsTo, momentsTo, 0}
		for _, m := range f.takeForeign(*c, f.takeSparse(*c, f.takeRings(*c, buffer[:0]))) {
			more, _ := v.Put(c, a, m.Stretch, m.N)
			dropped += more
		}
		dropped += f.dropped
	}
	return dropped
}

// folding takes the cells that fold out of a counter, and appends the cells that they fold into to
// a list. The list is not a field, so it needs no memory from the heap.
type folding struct {
	ages
	bucketsTo, momentsTo int64 // what buckets, and cells of a millisecond, fold into ends by then
	dropped              int64
}

// folds returns the bucket that a cell folds into, and whether it folds. The bucket is zero if the
// cell has left every window.
func (f *folding) folds(s Stretch) (into Stretch, ok bool) {
	into, due := f.ages.foldTarget(s)
	return into, due && into.End() <= f.end(s.Width)
}

// end is by when the bucket ends that a cell of some width may fold into.
func (f *folding) end(width int64) int64 {
	if width == 1 {
		return f.momentsTo
	}
	return f.bucketsTo
}

// move adds n events that were taken to the bucket that they fold into.
func (f *folding) move(list []Cell, into Stretch, n int64) []Cell {
	last := len(list) - 1
	switch {
	case into.Width == 0:
		f.dropped += n
	case last >= 0 && list[last].Stretch == into:
		list[last].N += n
	default:
		return append(list, Cell{into, n})
	}
	return list
}

func (f *folding) takeRings(c Counter, list []Cell) []Cell {
	for mask := c.mask(); mask != 0; mask &= mask - 1 {
		level := bits.TrailingZeros(mask)
		r, width := f.ring(c, level), f.width[level]
		oldest := f.index(level, f.from[level])
		if oldest <= r.head()-r.reach() {
			continue
		}
		r.each(func(i, n int64) bool {
			if i >= oldest {
				return false
			}
			s := Stretch{i * width, width}
			into, ok := f.folds(s)
			if !ok {
				into = s // back where it was
			}
			list = f.move(list, into, n)
			return true
		})
		r.forget(oldest)
	}
	return list
}

// takeSparse takes the sparse cells that fold.
func (f *folding) takeSparse(c Counter, list []Cell) []Cell {
	buckets, moments := f.sparseParts(c)
	first := int(f.start[c.mask()][MaxLevels])
	list, _ = f.takeWords(c, first+len(buckets), moments, list)
	list, gone := f.takeWords(c, first, buckets, list)
	c[1] -= uint64(gone)
	return list
}

// takeWords takes the words that fold, of words that begin at position first, and returns how many.
// All words in the bucket that one of them folds into follow it, and fold into the same bucket.
func (f *folding) takeWords(c Counter, first int, words []uint64, list []Cell) ([]Cell, int) {
	kept, at, sum := 0, 0, int64(0)
	for at < len(words) && endOf(words[at]) <= f.end(f.width[kindOf(words[at])]) {
		into, ok := f.folds(f.stretchOf(words[at]))
		if !ok {
			words[kept] = words[at]
			kept, at = kept+1, at+1
			continue
		}
		n, end := countOf(words[at]), min(into.End(), f.now+1)
		for at++; at < len(words) && endOf(words[at]) <= end &&
			f.width[kindOf(words[at])] < into.Width; at++ {
			n += countOf(words[at])
		}
		list = f.move(list, into, n)
		sum += n
	}
	gone := at - kept
	if gone > 0 {
		end := f.cellsEnd(c)
		copy(c[first+kept:end], c[first+at:end])
		c.adjustLens(-gone, 0)
		c.addToSparseSum(-sum)
	}
	return list, gone
}

func (f *folding) takeForeign(c Counter, list []Cell) []Cell {
	for i := 0; i < len(f.foreign(c)); {
		words := f.foreign(c)[i:]
		into, ok := f.folds(Stretch{int64(words[0]), int64(words[1])})
		if !ok {
			i += foreignWords
			continue
		}
		list = f.move(list, into, int64(words[2]))
		copy(words, words[foreignWords:])
		c.adjustLens(0, -1)
	}
	return list
}

// Holder returns the cell of a counter that holds n events counted in s before the counter folded:
// s itself, or the narrowest bucket around it that has as many. If there is none, it returns the
// bucket that s is due to fold into, or else s.
func (l *Ladder) Holder(c Counter, s Stretch, n, now int64) Stretch {
	holds := func(at Stretch) bool {
		held := l.Value(c, at)
		return n > 0 && held >= n || n < 0 && held <= n
	}
	if holds(s) {
		return s
	}
	for _, width := range l.width[:len(l.levels)] {
		into := Stretch{s.Start - s.Start%width, width}
		if width > s.Width && into.End() >= s.End() && holds(into) {
			return into
		}
	}
	if into, due := l.FoldTarget(s, now); due && into.Width > 0 {
		return into
	}
	return s
}

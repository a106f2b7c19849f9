package leaparray

import (
	"cmp"
	"math/bits"
	"slices"
)

// Value returns the count of a cell.
func (l *Ladder) Value(c Counter, s Stretch) int64 {
	if len(c) == 0 {
		return 0
	}
	kind, pos := l.classify(c, s)
	n := int64(0)
	switch {
	case kind < foreign && c.dense(kind):
		n = l.ring(c, kind).sum(pos, pos)
	case kind != foreign:
		if i, found := l.findSparse(c, l.tag(kind, pos)); found {
			n = countOf(l.sparse(c)[i])
		}
	}
	for at, held := range l.foreignCells(c) {
		if at == s {
			n += held
		}
	}
	return n
}

// EachCell calls fn for every cell that is not zero, in no particular order, until fn returns
// false. It reports whether fn never did.
func (l *Ladder) EachCell(c Counter, fn func(s Stretch, n int64) bool) (all bool) {
	if len(c) == 0 {
		return true
	}
	for mask := c.mask(); mask != 0; mask &= mask - 1 {
		level := bits.TrailingZeros(mask)
		w, more := l.width[level], true
		l.ring(c, level).each(func(i, n int64) bool {
			more = fn(Stretch{i * w, w}, n)
			return more
		})
		if !more {
			return false
		}
	}
	for _, w := range l.sparse(c) {
		if n := countOf(w); n != 0 && !fn(l.stretchOf(w), n) {
			return false
		}
	}
	for s, n := range l.foreignCells(c) {
		if !fn(s, n) {
			return false
		}
	}
	return true
}

// EachUpTo calls fn for every cell that is not zero and at most this wide: first for the moments,
// then for the buckets of each level, all in the order of time, and then for foreign cells.
func (l *Ladder) EachUpTo(c Counter, widest int64, fn func(s Stretch, n int64)) {
	if len(c) == 0 {
		return
	}
	buckets, moments := l.sparseParts(c)
	for _, w := range moments {
		if n := countOf(w); n != 0 {
			fn(l.stretchOf(w), n)
		}
	}
	for level := 0; level < len(l.levels) && l.width[level] <= widest; level++ {
		if width := l.width[level]; c.dense(level) {
			l.ring(c, level).each(func(i, n int64) bool {
				fn(Stretch{i * width, width}, n)
				return true
			})
			continue
		}
		for _, w := range buckets {
			if n := countOf(w); kindOf(w) == level && n != 0 {
				fn(l.stretchOf(w), n)
			}
		}
	}
	for s, n := range l.foreignCells(c) {
		if s.Width <= widest {
			fn(s, n)
		}
	}
}

// CellCount returns the number of cells that are not zero.
func (l *Ladder) CellCount(c Counter) (n int) {
	if c.isEmpty() {
		return 0
	}
	n = c.sparseLen() + c.foreignLen()
	for _, w := range l.buckets(c) {
		if countOf(w) == 0 { // a mark
			n--
		}
	}
	for mask := c.mask(); mask != 0; mask &= mask - 1 {
		l.ring(c, bits.TrailingZeros(mask)).each(func(_, _ int64) bool {
			n++
			return true
		})
	}
	return n
}

// NewestBucket returns the newest bucket of the finest level, even if it is zero.
func (l *Ladder) NewestBucket(c Counter) (s Stretch, ok bool) {
	newest := l.newestIndex(c, 0)
	return Stretch{newest * l.width[0], l.width[0]}, newest >= 0
}

// LatestStart returns the start of the latest cell of a counter, in unix milliseconds, or -1 if it
// has no cells. The latest cell may be zero.
func (l *Ladder) LatestStart(c Counter) (start int64) {
	start = -1
	if len(c) == 0 {
		return start
	}
	for mask := c.mask(); mask != 0; mask &= mask - 1 {
		level := bits.TrailingZeros(mask)
		start = max(start, l.ring(c, level).head()*l.width[level])
	}
	buckets, moments := l.sparseParts(c)
	if last := len(moments) - 1; last >= 0 {
		start = max(start, endOf(moments[last])-1)
	}
	for i := len(buckets) - 1; i >= 0 && endOf(buckets[i]) > start; i-- {
		start = max(start, l.stretchOf(buckets[i]).Start)
	}
	for s := range l.foreignCells(c) {
		start = max(start, s.Start)
	}
	return start
}

// Total returns the number of events in all cells.
func (l *Ladder) Total(c Counter) (n int64) {
	if len(c) == 0 {
		return 0
	}
	for mask := c.mask(); mask != 0; mask &= mask - 1 {
		n += l.ring(c, bits.TrailingZeros(mask)).sumAll()
	}
	for _, held := range l.foreignCells(c) {
		n += held
	}
	return n + c.sparseSum()
}

// Fold is a cell that folds. Into has no width if the cell has left every window.
type Fold struct {
	Cell
	Into Stretch
}

// ListFolds returns the cells of a list that have to fold, as [View.Fold] does, for callers that
// keep cells in another form. An exactFrom of 0 stands for the result of [View.ExactFrom].
func (l *Ladder) ListFolds(cells []Cell, now, exactFrom int64) (folds []Fold) {
	if exactFrom == 0 {
		exactFrom = l.exactFrom(cells)
	}
	a := l.ages(now)
	for _, c := range cells {
		if into, due := a.foldTarget(c.Stretch); due && into.End() <= exactFrom {
			folds = append(folds, Fold{c, into})
		}
	}
	return folds
}

// exactFrom is View.ExactFrom of a list of cells.
func (l *Ladder) exactFrom(cells []Cell) int64 {
	if l.exact == 0 {
		return maxMoment
	}
	list := slices.Clone(cells)
	slices.SortFunc(list, func(a, b Cell) int {
		return cmp.Or(cmp.Compare(b.End(), a.End()), cmp.Compare(b.Start, a.Start))
	})
	from, sum := maxMoment, int64(0)
	for _, c := range list {
		sum, from = sum+c.N, min(from, c.Start)
		if sum >= l.exact {
			return from
		}
	}
	return 0
}

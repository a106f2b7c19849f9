package leaparray

import (
	"iter"
	"math/bits"
	"slices"
)

// View reads one counter, or two as their sum. Either may be nil.
type View struct {
	Ladder *Ladder
	A, B   Counter
	// Now is the present, in unix milliseconds.
	Now int64
}

// Estimate is the number of events in a window, with bounds.
type Estimate struct {
	// Count is the interpolated number. Lo is the sum without the cells that reach beyond the
	// window, Hi the sum with them. The true number is between Lo and Hi, both included.
	Count, Lo, Hi int64
	// Width is the width of the widest cell that reaches beyond the window, in milliseconds; 1 if
	// there is none.
	Width int64
}

// sums adds up the cells that a window touches.
type sums struct {
	all int64
	// older and newer are the sums, by level, of the cells that reach beyond the older and the
	// newer end. Cells of other widths add to rest.
	older, newer [kinds]int64
	rest         Estimate
}

// Value returns the count of a cell.
func (v View) Value(s Stretch) int64 {
	return v.Ladder.Value(v.A, s) + v.Ladder.Value(v.B, s)
}

// Cells iterates over the cells of both counters that are not zero, in no particular order.
func (v *View) Cells() iter.Seq2[Stretch, int64] {
	return func(yield func(Stretch, int64) bool) {
		_ = v.Ladder.EachCell(v.A, yield) && v.Ladder.EachCell(v.B, yield)
	}
}

// Clone returns a view of copies of the counters, which later changes don't affect.
func (v View) Clone() View {
	v.A, v.B = slices.Clone(v.A), slices.Clone(v.B)
	return v
}

// Cell returns the cell that counts an event of a moment, which must not be too old.
func (v View) Cell(ts int64) Stretch {
	s := v.bucket(ts)
	l, last := v.Ladder, s.End()-1
	if l.exact == 0 || l.countNewer(v.A, last)+l.countNewer(v.B, last) >= l.exact {
		return s
	}
	return Moment(ts)
}

// bucket is Cell, if no event keeps its millisecond.
func (v *View) bucket(ts int64) Stretch {
	l := v.Ladder
	if v.Now-ts <= l.count[0]*l.width[0] { // nearly always
		return Stretch{l.index(0, ts) * l.width[0], l.width[0]}
	}
	s, ok := l.Bucket(ts, v.Now)
	if !ok { // it is as old as anything can be
		width := l.CoarsestWidth()
		s = Stretch{l.index(len(l.levels)-1, ts) * width, width}
	}
	return s
}

// PeakBlur is Peak, and also returns the uncertainty of the windows' edges: the width of the widest
// cell cut by the window that ends at the moment, or of the widest cell that any of the windows
// touches if there may be later events; 1 if all are exact.
func (v View) PeakBlur(window, at int64) (peak, blur int64, ok bool) {
	from, to := at-window, at+window
	if at >= v.Now && v.covers(window, at) {
		if peak, blur, ok = v.sumAfter(from+1, at); ok {
			return peak, max(1, blur), true
		}
	}
	peak, ok = v.peak(window, at)
	blur = max(1, v.Ladder.widest(v.A, from, to), v.Ladder.widest(v.B, from, to))
	return peak, blur, ok
}

// EdgeWidth returns the width of the widest cell that a window which begins at a moment cuts; 1 if
// it cuts none.
func (v View) EdgeWidth(from int64) int64 {
	return max(1, v.Ladder.widest(v.A, from, from), v.Ladder.widest(v.B, from, from))
}

// widest returns the width of the widest bucket of a counter that begins before one moment and ends
// after another one.
func (l *Ladder) widest(c Counter, after, before int64) (width int64) {
	if c.isEmpty() {
		return 0
	}
	for mask := c.mask(); mask != 0; mask &= mask - 1 {
		level := bits.TrailingZeros(mask)
		r, w := l.ring(c, level), l.width[level]
		if (r.head()+1)*w <= after || (r.head()-r.reach())*w >= before {
			continue
		}
		lo := l.index(level, after)
		hi := lo
		if before != after || lo*w == after {
			hi = l.index(level, before-1)
		}
		if r.sum(lo, hi) != 0 {
			width = w
		}
	}
	width = max(width, l.widestBucket(l.buckets(c), after, before))
	for s := range l.foreignCells(c) {
		if s.Start < before && s.End() > after {
			width = max(width, s.Width)
		}
	}
	return width
}

// widestBucket is widest for sparse buckets.
func (l *Ladder) widestBucket(buckets []uint64, after, before int64) (width int64) {
	for _, w := range buckets {
		s := l.stretchOf(w)
		if s.End() >= before+l.CoarsestWidth() {
			break // all others begin later
		}
		if s.Start < before && s.End() > after {
			width = max(width, s.Width)
		}
	}
	return width
}

// Covers reports whether the key still has all events from the start of the window of this length
// that ends at a moment.
func (v View) Covers(window, at int64) bool { return v.covers(window, at) }

func (v *View) covers(window, at int64) bool {
	from, span := at-window+1, v.Ladder.span
	return window <= span && (from >= v.Now-2*span || from >= v.Ladder.CompleteFrom(v.Now))
}

// UpperBound returns the sum of all cells that touch the window from one moment to another, both
// included.
func (v View) UpperBound(from, to int64) int64 { return v.upperBound(from, to) }

func (v *View) upperBound(from, to int64) int64 {
	return v.Ladder.sumTouched(v.A, from, to) + v.Ladder.sumTouched(v.B, from, to)
}

// sumAfter returns the sum of all cells that end after from, and the width of the widest one that
// from cuts. It reports false if a cell begins after to, and sometimes if none does; otherwise
// these are the cells that the window from one to the other touches.
func (v *View) sumAfter(from, to int64) (n, cut int64, ok bool) {
	ok = true
	if !v.A.isEmpty() {
		n, cut, ok = v.Ladder.sumAfter(v.A, from, to)
	}
	if ok && !v.B.isEmpty() {
		var b, width int64
		b, width, ok = v.Ladder.sumAfter(v.B, from, to)
		n, cut = n+b, max(cut, width)
	}
	return n, cut, ok
}

// sumAfter is View.sumAfter of one counter that is not empty. It looks at few cells if the window
// begins long ago, or a moment ago.
func (l *Ladder) sumAfter(c Counter, from, to int64) (n, cut int64, ok bool) {
	if c.foreignLen() > 0 {
		return 0, 0, false
	}
	next := head
	for mask := c.mask(); mask != 0; mask &= mask - 1 {
		level := bits.TrailingZeros(mask) % kinds
		at, width := next, l.width[level]
		next += ringHead + l.slots[level]
		switch start := int64(c[at]) * width; {
		case start > to:
			return 0, 0, false
		case start+width <= from:
		case start-int64(l.slots[level]-2)*width >= from:
			n += ring(c[at:next]).sumAll()
		default:
			i := l.index(level, from)
			sum, first := ring(c[at:next]).sumFrom(i)
			if n += sum; first != 0 && i*width < from {
				cut = width
			}
		}
	}
	mid := next + c.bucketLen()
	buckets, moments := c[next:mid], c[mid:next+c.sparseLen()]
	if last := len(moments) - 1; last >= 0 && endOf(moments[last])-1 > to {
		return 0, 0, false
	}
	if last := len(buckets) - 1; last >= 0 && endOf(buckets[last]) > from {
		for i := last; i >= 0 && endOf(buckets[i])-1 > to; i-- {
			if l.stretchOf(buckets[i]).Start > to {
				return 0, 0, false
			}
		}
		cut = max(cut, l.widestBucket(buckets, from, from))
	}
	return n + sumSince(buckets, moments, c.sparseSum(), from), cut, true
}

// sumTouched returns the sum of all cells of a counter that a window touches.
func (l *Ladder) sumTouched(c Counter, from, to int64) (n int64) {
	if c.isEmpty() {
		return 0
	}
	if n, _, ok := l.sumAfter(c, from, to); ok {
		return n
	}
	var s sums
	l.gather(&s, c, from, to)
	return s.all
}

// Count estimates the events in the window of this length that ends at a moment. Unless the moment
// is the present (live), its cell may hold later events and is not part of Lo. Nor are events ahead
// of the present. Count reports false if the window is longer than the ladder, or begins before the
// oldest cell that is kept.
func (v View) Count(window, at int64, live bool) (Estimate, bool) {
	if !v.covers(window, at) {
		return Estimate{}, false
	}
	from := at - window + 1
	var s sums
	s.rest.Width = 1
	v.Ladder.gather(&s, v.A, from, at)
	v.Ladder.gather(&s, v.B, from, at)
	inside := live &&
		max(v.Ladder.newestIndex(v.A, 0), v.Ladder.newestIndex(v.B, 0)) <= v.Ladder.index(0, at)
	e := s.rest
	e.Hi, e.Lo, e.Count = s.all, s.all-e.Lo, s.all-e.Count
	for level, width := range v.Ladder.width[:len(v.Ladder.levels)] {
		if n := s.older[level]; n > 0 {
			start := v.Ladder.index(level, from) * width
			part := min(start+width, at+1) - from
			e.Lo -= n
			e.Count -= n - prorate(n, part, width)
			e.Width = max(e.Width, width)
		}
		if n := s.newer[level]; n > 0 && !inside {
			e.Lo -= n
			if !live {
				e.Count -= n - prorate(n, at+1-v.Ladder.index(level, at)*width, width)
			}
			e.Width = max(e.Width, width)
		}
	}
	return e, true
}

// gather adds the cells of a counter that a window touches to its sums.
func (l *Ladder) gather(s *sums, c Counter, from, to int64) {
	if c.isEmpty() {
		return
	}
	for mask := c.mask(); mask != 0; mask &= mask - 1 {
		level := bits.TrailingZeros(mask)
		w := l.width[level]
		lo, hi := l.index(level, from), l.index(level, to)
		sum, first, last := l.ring(c, level).sumAndEnds(lo, hi)
		s.all += sum
		if lo*w < from {
			s.older[level] += first
		}
		if (hi+1)*w-1 > to && (hi > lo || lo*w >= from) {
			s.newer[level] += last
		}
	}
	buckets, moments := l.sparseParts(c)
	for i := len(buckets) - 1; i >= 0 && endOf(buckets[i]) > from; i-- {
		at, n, level := l.stretchOf(buckets[i]), countOf(buckets[i]), kindOf(buckets[i])
		if at.Start > to {
			continue
		}
		s.all += n
		if at.Start < from {
			s.older[level] += n
		} else if at.End()-1 > to {
			s.newer[level] += n
		}
	}
	for i := len(moments) - 1; i >= 0 && endOf(moments[i]) > from; i-- {
		if endOf(moments[i])-1 <= to {
			s.all += countOf(moments[i])
		}
	}
	for at, n := range l.foreignCells(c) {
		if at.Start > to || at.End() <= from {
			continue
		}
		s.all += n
		if at.Start < from || at.End()-1 > to {
			s.rest.Lo += n
			part := min(at.End(), to+1) - max(at.Start, from)
			s.rest.Count += n - prorate(max(0, n), part, at.Width)
			s.rest.Width = max(s.rest.Width, at.Width)
		}
	}
}

// prorate returns n x part / whole, rounded to the nearest integer. No number is negative, and part
// is less than whole. The product may take more than 64 bits.
func prorate(n, part, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(part))
	quo, rem := bits.Div64(hi, lo, uint64(whole))
	if rem >= uint64(whole-whole/2) {
		quo++
	}
	return int64(quo)
}

// Series calls fn with the start, in unix milliseconds, and the count of every bucket in the window
// of this length that ends at a moment, oldest first. All have the width of the widest cell that
// the window touches, which it returns in milliseconds. It reports false as Count does.
func (v View) Series(window, at int64, fn func(start, n int64)) (width int64, ok bool) {
	from := at - window + 1
	oldest, ok := v.Ladder.Bucket(from, v.Now)
	if !ok || !v.covers(window, at) {
		return 0, false
	}
	width = oldest.Width
	for s := range v.Cells() {
		if s.Start <= at && s.End() > from {
			width = max(width, s.Width)
		}
	}
	first := from - from%width
	counts := make([]int64, (at-first)/width+1)
	for s, n := range v.Cells() {
		if s.Start <= at && s.End() > first {
			counts[max(0, s.Start-first)/width] += n
		}
	}
	for i, n := range counts {
		fn(first+int64(i)*width, n)
	}
	return width, true
}

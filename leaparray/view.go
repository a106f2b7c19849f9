package leaparray

import (
	"math/bits"
	"slices"
)

// View reads one counter, or two as their sum. Either may be nil.
type View struct {
	Ladder *Ladder
	A, B   Counter
	// Now, if not 0, says that buckets are lost by age too, even if no newer ones arrive: those
	// that began more than Keep buckets before this moment.
	Now int64
}

// Estimate is the number of events in a window, with bounds.
type Estimate struct {
	// Count is the interpolated number. Lo is the sum without the buckets that reach beyond the
	// window, Hi the sum with them. The true number is between Lo and Hi, both included.
	Count, Lo, Hi int64
	// Bucket is the width of the buckets that were read, in milliseconds.
	Bucket int64
}

// Range is a run of buckets of one level, both ends included.
type Range struct {
	Level  int
	Lo, Hi int64
}

// Head returns the index of the newest bucket of a level, or -1 if there is none.
func (v View) Head(level int) int64 { return v.head(level) }

func (v *View) head(level int) int64 {
	head := v.Ladder.Head(v.A, level)
	if len(v.B) > 0 {
		head = max(head, v.Ladder.Head(v.B, level))
	}
	return head
}

// Value returns the count of one bucket.
func (v View) Value(level int, idx int64) int64 { return v.sum(level, idx, idx) }

func (v *View) sum(level int, lo, hi int64) int64 {
	sum := v.Ladder.Sum(v.A, level, lo, hi)
	if len(v.B) > 0 {
		sum += v.Ladder.Sum(v.B, level, lo, hi)
	}
	return sum
}

// Before returns the newest bucket of a level that is older than idx and holds something, and how
// much that is. It returns -1 if there is none.
func (v View) Before(level int, idx int64) (before, n int64) {
	for before = idx; before >= 0; {
		before = max(v.Ladder.before(v.A, level, before), v.Ladder.before(v.B, level, before))
		if n = v.sum(level, before, before); n > 0 {
			return before, n
		}
	}
	return -1, 0
}

// Range returns the buckets touched by the window of this length that ends at the given moment, on
// the finest level that covers it and still holds all of them. It reports false if there is no such
// level: the window is longer than the ladder, or begins before the oldest bucket kept.
func (v View) Range(window, at int64) (Range, bool) { return v.find(window, at) }

// find is Range. Like everything that reads, it takes a pointer: copying a View copies seven words.
func (v *View) find(window, at int64) (Range, bool) {
	l := v.Ladder
	stored := l.storedLevels()
	for level := range l.levels {
		if l.reach(stored, level) < window {
			continue
		}
		lo := l.Index(level, at-window+1)
		if v.holds(level, lo) {
			return Range{level, lo, l.Index(level, at)}, true
		}
	}
	return Range{}, false
}

// holds reports whether a level certainly has everything that was counted in its buckets from lo
// on.
func (v *View) holds(level int, lo int64) bool {
	head := v.head(level)
	if v.Now != 0 {
		return lo >= max(head, v.Ladder.Index(level, v.Now))-v.Ladder.keep[level]
	}
	return lo >= head-v.Ladder.keep[level] && (head >= lo || !v.lost(level, head))
}

// Has reports whether, at a given moment, a level certainly has everything that was counted in one
// of its buckets.
func (v View) Has(level int, idx, now int64) bool {
	l := v.Ladder
	reach := l.Reach(level)
	return v.holds(level, idx) && (reach == l.span[level] || now-idx*l.width[level] < reach)
}

// Complete returns the oldest bucket from which on a level certainly has everything that was
// counted, or false if it has lost newer ones than it holds.
func (v View) Complete(level int) (oldest int64, ok bool) {
	if v.Ladder.Lacks(level) {
		return 0, false
	}
	head := v.head(level)
	if v.Now != 0 {
		return max(head, v.Ladder.Index(level, v.Now)) - v.Ladder.keep[level], true
	}
	return head - v.Ladder.keep[level], !v.lost(level, head)
}

// Clone returns a view of copies of the counters, which stays as it is.
func (v View) Clone() View {
	v.A, v.B = slices.Clone(v.A), slices.Clone(v.B)
	return v
}

// lost reports whether a coarser level has a bucket that begins after the newest one of this level.
// Then this level has lost some.
func (v *View) lost(level int, head int64) bool {
	end := (head + 1) * v.Ladder.width[level]
	return v.Ladder.hasFrom(v.A, level+1, end) || v.Ladder.hasFrom(v.B, level+1, end)
}

// Count estimates the events in the window that ends at the given moment. Unless that is the
// present (live), the bucket that the moment falls into may hold later events and is not part of
// Lo. Neither is what lies ahead of the present, if there is anything. Count reports false as Range
// does.
func (v View) Count(window, at int64, live bool) (Estimate, bool) {
	r, ok := v.find(window, at)
	if !ok {
		return Estimate{}, false
	}
	width := v.Ladder.width[r.Level]
	sum, oldest, newest := v.Ladder.ends(v.A, r.Level, r.Lo, r.Hi)
	if len(v.B) > 0 {
		s, o, n := v.Ladder.ends(v.B, r.Level, r.Lo, r.Hi)
		sum, oldest, newest = sum+s, oldest+o, newest+n
	}
	e := Estimate{Count: sum, Lo: sum, Hi: sum, Bucket: width}
	start := at - window + 1
	inside := (r.Lo+1)*width - start
	if inside < width && oldest > 0 {
		e.Lo -= oldest
		e.Count -= oldest - share(oldest, inside, width)
	}
	if (inside == width || r.Hi > r.Lo) && (r.Hi+1)*width-1 > at && newest > 0 {
		e.Lo -= min(newest, v.later(r, at, live))
	}
	return e, true
}

// later bounds how many events in the newest bucket of a range are later than the moment that it
// ends at.
func (v *View) later(r Range, at int64, live bool) int64 {
	idx := v.Ladder.Index(0, at)
	if live && v.head(0) <= idx {
		return 0
	}
	level, lo := r.Level, r.Hi
	if live && !v.Ladder.Lacks(0) {
		level, lo = 0, idx
	}
	end := (r.Hi+1)*v.Ladder.width[r.Level] - 1
	return max(0, v.sum(level, lo, v.Ladder.Index(level, end)))
}

// share returns n x part / whole, rounded to the nearest integer. No number is negative, and part
// is less than whole. The product may take more than 64 bits.
func share(n, part, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(part))
	quo, rem := bits.Div64(hi, lo, uint64(whole))
	if rem >= uint64(whole-whole/2) {
		quo++
	}
	return int64(quo)
}

// Peak returns the largest sum, oldest buckets included, of any window of this length that contains
// the given moment. For the newest event that is the window ending there. For a late one it decides
// whether one more event at that moment would overfill a window that ends later.
func (v View) Peak(window, at int64) (peak int64, r Range, ok bool) {
	r, ok = v.find(window, at)
	if !ok {
		return 0, r, false
	}
	peak = v.sum(r.Level, r.Lo, r.Hi)
	last := min(v.head(r.Level), v.Ladder.Index(r.Level, at+window-1))
	if last > r.Hi {
		var buf [lineBuffer]bucket
		buckets := v.line(r.Level, buf[:0])
		peak = max(peak, buckets.most(v.Ladder, r.Level, window, r.Hi+1, last))
	}
	return peak, r, true
}

// RetryAfter returns how many milliseconds after the given moment n more events fit under limit if
// nothing else is counted until then: 0 if they fit now, -1 if they never will because n alone
// exceeds limit. They do not fit a millisecond earlier on the level of [View.Range], unless the
// windows after the moment are too full for more than 512 buckets. Then the result may be longer.
func (v View) RetryAfter(window, at, n, limit int64) int64 {
	if n > limit {
		return -1
	}
	peak, r, ok := v.Peak(window, at)
	if !ok {
		return window
	}
	if peak+n <= limit {
		return 0
	}
	var buf [lineBuffer]bucket
	buckets := v.line(r.Level, buf[:0])
	head := max(r.Hi, v.head(r.Level))
	return max(1, buckets.room(v.Ladder, r.Level, window, at, head, limit-n)-at)
}

// Series calls fn with the start, in unix milliseconds, and the count of every bucket in the window
// that ends at the given moment, oldest first. It returns the width of the buckets in milliseconds,
// and reports false as Range does.
func (v View) Series(window, at int64, fn func(start, n int64)) (widthMS int64, ok bool) {
	r, ok := v.Range(window, at)
	if !ok {
		return 0, false
	}
	var buf [lineBuffer]bucket
	width, buckets := v.Ladder.width[r.Level], v.line(r.Level, buf[:0])
	var end edge
	before := buckets.before(&end, r.Lo)
	for i := r.Lo; i <= r.Hi; i++ {
		sum := buckets.before(&end, i+1)
		fn(i*width, sum-before)
		before = sum
	}
	return width, true
}

// Each calls fn for every bucket of a level that is not zero, oldest first.
func (v View) Each(level int, fn func(idx, n int64)) {
	if len(v.A) == 0 && len(v.B) == 0 {
		return
	}
	var buf [lineBuffer]bucket
	s := v.line(level, buf[:0])
	if s.dense[0] != nil || s.dense[1] != nil {
		var end edge
		head := v.head(level)
		first := head - v.Ladder.keep[level]
		before := s.before(&end, first)
		for i := first; i <= head; i++ {
			sum := s.before(&end, i+1)
			if sum != before {
				fn(i, sum-before)
			}
			before = sum
		}
		return
	}
	for i := 0; i < len(s.sparse); {
		idx, n := s.sparse[i].idx, int64(0)
		for ; i < len(s.sparse) && s.sparse[i].idx == idx; i++ {
			n += s.sparse[i].n
		}
		if n != 0 {
			fn(idx, n)
		}
	}
}

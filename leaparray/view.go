package leaparray

// View reads one or two counters of a ladder as their sum. Either may be nil.
type View struct {
	Ladder *Ladder
	A, B   Counter
	// Now, if it is not 0, says that buckets are lost by age as well, whether or not newer ones
	// came: those that began more than Keep buckets before this moment.
	Now int64
}

// Estimate is what is known of the number of events in a window.
type Estimate struct {
	// Count is the interpolated figure, Lo the sum without the buckets that reach beyond the
	// window, Hi with them. The true figure is not below Lo and not above Hi.
	Count, Lo, Hi int64
	// Bucket is the width, in milliseconds, of the buckets that were read.
	Bucket int64
}

// Range is a run of buckets of one level.
type Range struct {
	Level  int
	Lo, Hi int64
}

// Head is the index of the newest bucket of a level, -1 if there is none.
func (v View) Head(level int) int64 { return v.head(level) }

func (v *View) head(level int) int64 {
	head := v.Ladder.Head(v.A, level)
	if len(v.B) > 0 {
		head = max(head, v.Ladder.Head(v.B, level))
	}
	return head
}

// Value is the count of one bucket.
func (v View) Value(level int, idx int64) int64 { return v.sum(level, idx, idx) }

func (v *View) sum(level int, lo, hi int64) int64 {
	sum := v.Ladder.Sum(v.A, level, lo, hi)
	if len(v.B) > 0 {
		sum += v.Ladder.Sum(v.B, level, lo, hi)
	}
	return sum
}

// Range returns the buckets that the window of this length ending at the given moment touches, on
// the finest level that covers it and still holds them all. It reports false if no level does: the
// window is longer than the ladder, or it begins before what the ladder keeps.
func (v View) Range(window, at int64) (Range, bool) { return v.find(window, at) }

// find is Range. Like all that reading is made of it takes a pointer: a View is seven words to
// copy.
func (v *View) find(window, at int64) (Range, bool) {
	l := v.Ladder
	for level := range l.levels {
		if l.span[level] < window {
			continue
		}
		lo := l.Index(level, at-window+1)
		if v.holds(level, lo) {
			return Range{level, lo, l.Index(level, at)}, true
		}
	}
	return Range{}, false
}

// holds reports whether a level is certain to have all that was counted in its buckets from lo on.
func (v *View) holds(level int, lo int64) bool {
	head := v.head(level)
	if v.Now != 0 {
		return lo >= max(head, v.Ladder.Index(level, v.Now))-v.Ladder.keep[level]
	}
	return lo >= head-v.Ladder.keep[level] && (head >= lo || !v.lost(level, head))
}

// lost reports whether a coarser level has a bucket that begins after the newest of this one, so
// that some of these are gone.
func (v *View) lost(level int, head int64) bool {
	end := (head + 1) * v.Ladder.width[level]
	for coarser := level + 1; coarser < len(v.Ladder.levels); coarser++ {
		if v.head(coarser)*v.Ladder.width[coarser] >= end {
			return true
		}
	}
	return false
}

// Count estimates the events in the window ending at the given moment. If that is not the present
// (live is false), the bucket that it falls into may hold events that are later; then it is not
// part of Lo.
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
	if inside := (r.Lo+1)*width - start; inside < width && oldest != 0 {
		e.Lo -= oldest
		e.Count -= oldest - share(oldest, inside, width)
	}
	if !live && r.Hi > r.Lo && (r.Hi+1)*width-1 > at {
		e.Lo -= newest
	}
	return e, true
}

// share is n x part / whole, rounded to the nearest, without overflow.
func share(n, part, whole int64) int64 {
	return n/whole*part + (n%whole*part+whole/2)/whole
}

// Peak is the largest sum, oldest buckets included, of any window of this length that contains the
// given moment. For the newest event that is the window ending there; for a late one it is what
// decides whether one more event at that moment would overfill a window that ends later.
func (v View) Peak(window, at int64) (peak int64, r Range, ok bool) {
	r, ok = v.find(window, at)
	if !ok {
		return 0, r, false
	}
	peak = v.sum(r.Level, r.Lo, r.Hi)
	width := v.Ladder.width[r.Level]
	last := min(v.head(r.Level), v.Ladder.Index(r.Level, at+window-1))
	for end := r.Hi + 1; end <= last; end++ {
		lo := v.Ladder.Index(r.Level, end*width-window+1)
		peak = max(peak, v.sum(r.Level, lo, end))
	}
	return peak, r, true
}

// RetryAfter is how many milliseconds after the given moment n more events will fit under limit, if
// nothing else is counted until then: 0 if they do now, -1 if they never will because n alone is
// more than limit.
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
	width := v.Ladder.width[r.Level]
	head := max(r.Hi, v.Head(r.Level))
	left := v.sum(r.Level, r.Lo, head)
	for i := r.Lo; i <= head; i++ {
		left -= v.Value(r.Level, i)
		if left+n <= limit {
			return max(1, (i+1)*width+window-1-at)
		}
	}
	return window
}

// Series calls fn with the start, in unix milliseconds, and the count of every bucket of the window
// ending at the given moment, oldest first. It returns the width of the buckets, and false as Range
// does.
func (v View) Series(window, at int64, fn func(start, n int64)) (bucket int64, ok bool) {
	r, ok := v.Range(window, at)
	if !ok {
		return 0, false
	}
	bucket = v.Ladder.width[r.Level]
	for i := r.Lo; i <= r.Hi; i++ {
		fn(i*bucket, v.Value(r.Level, i))
	}
	return bucket, true
}

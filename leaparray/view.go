package leaparray

import (
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
	// Width is that of the widest cell that reaches beyond the window, in milliseconds; 1 if there
	// is none.
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

// Clone returns a view of copies of the counters, which stays as it is.
func (v View) Clone() View {
	v.A, v.B = slices.Clone(v.A), slices.Clone(v.B)
	return v
}

// Cell returns the cell that counts an event of a moment, which is not too old to be counted.
func (v View) Cell(ts int64) Stretch {
	if v.Exactly(ts) {
		return Moment(ts)
	}
	s, ok := v.Ladder.Bucket(ts, v.Now)
	if !ok { // it is as old as anything can be
		width := v.Ladder.Coarsest()
		s = Stretch{v.Ladder.index(len(v.Ladder.levels)-1, ts) * width, width}
	}
	return s
}

// Blur returns by how much the edges of the windows of this length that contain a moment are
// uncertain: the width of the widest cell that the window which ends there cuts, or of the widest
// that any of them touches if there may be later events; 1 if all are exact.
func (v View) Blur(window, at int64) (width int64) {
	from, to := at-window+1, at-window+1
	if at < v.Now || v.Ladder.later(v.A, at) || v.Ladder.later(v.B, at) {
		from, to = at-window, at+window
	}
	return max(1, v.Ladder.widest(v.A, from, to), v.Ladder.widest(v.B, from, to))
}

// Edge returns the width of the widest cell that a window which begins at a moment cuts; 1 if it
// cuts none.
func (v View) Edge(from int64) int64 {
	return max(1, v.Ladder.widest(v.A, from, from), v.Ladder.widest(v.B, from, from))
}

// widest returns the width of the widest cell of a counter that begins before one moment and ends
// after another one.
func (l *Ladder) widest(c Counter, after, before int64) (width int64) {
	if len(c) == 0 {
		return 0
	}
	look := func(s Stretch) {
		if s.Start < before && s.End() > after {
			width = max(width, s.Width)
		}
	}
	for mask := c.mask(); mask != 0; mask &= mask - 1 {
		level := bits.TrailingZeros(mask)
		w := l.width[level]
		lo, hi := l.index(level, after), l.index(level, before-1)
		if l.ring(c, level).sum(lo, hi) != 0 {
			look(Stretch{hi * w, w})
		}
	}
	words := l.sparse(c)
	for i := len(words) - 1; i >= 0; i-- {
		s := l.stretch(words[i])
		if s.End() <= after {
			break
		}
		look(s)
	}
	words = l.foreign(c)
	for i := 0; i < len(words); i += foreignWords {
		look(Stretch{int64(words[i]), int64(words[i+1])})
	}
	return width
}

// Covers reports whether a window of this length that ends at a moment begins at a time of which
// the key still has all events.
func (v View) Covers(window, at int64) bool { return v.covers(window, at) }

func (v *View) covers(window, at int64) bool {
	return window <= v.Ladder.Span() && at-window+1 >= v.Ladder.Since(v.Now)
}

// Hi returns the sum of all cells that the window from one moment to another touches, both
// included.
func (v View) Hi(from, to int64) int64 { return v.hi(from, to) }

func (v *View) hi(from, to int64) int64 {
	n := v.Ladder.touched(v.A, from, to)
	if len(v.B) > 0 {
		n += v.Ladder.touched(v.B, from, to)
	}
	return n
}

// touched returns the sum of all cells of a counter that a window touches.
func (l *Ladder) touched(c Counter, from, to int64) (n int64) {
	if len(c) == 0 {
		return 0
	}
	for mask := c.mask(); mask != 0; mask &= mask - 1 {
		level := bits.TrailingZeros(mask)
		if r := l.ring(c, level); (r.head()+1)*l.width[level] > from {
			n += r.sum(l.index(level, from), l.index(level, to))
		}
	}
	words := l.foreign(c)
	for i := 0; i < len(words); i += foreignWords {
		if start := int64(words[i]); start <= to && start+int64(words[i+1]) > from {
			n += int64(words[i+2])
		}
	}
	return n + l.touchedSparse(c, from, to)
}

// touchedSparse is touched for the sparse cells, which are in the order of their ends. It adds up
// those in the window, or takes all others from the sum, whatever is less to do.
func (l *Ladder) touchedSparse(c Counter, from, to int64) (n int64) {
	words, rest := l.sparse(c), int64(c[1])
	for len(words) > 0 {
		w := words[len(words)-1]
		s := l.stretch(w)
		if s.End()-1 <= to {
			break
		}
		if s.Start <= to && s.End() > from {
			n += countOf(w)
		}
		rest -= countOf(w)
		words = words[:len(words)-1]
	}
	if len(words) == 0 {
		return n
	}
	if l.stretch(words[len(words)/2]).End() > from {
		for i := 0; l.stretch(words[i]).End() <= from; i++ {
			rest -= countOf(words[i])
		}
		return n + rest
	}
	for i := len(words) - 1; l.stretch(words[i]).End() > from; i-- {
		n += countOf(words[i])
	}
	return n
}

// Count estimates the events in the window of this length that ends at a moment. Unless that is the
// present (live), the cell that the moment falls into may hold later events and is not part of Lo.
// Neither are events ahead of the present. Count reports false if the
// window is longer than the ladder, or begins before the oldest cell that is kept.
func (v View) Count(window, at int64, live bool) (Estimate, bool) {
	if !v.covers(window, at) {
		return Estimate{}, false
	}
	from := at - window + 1
	var s sums
	s.rest.Width = 1
	v.Ladder.gather(&s, v.A, from, at)
	v.Ladder.gather(&s, v.B, from, at)
	inside := live && max(v.Ladder.newest(v.A), v.Ladder.newest(v.B)) <= v.Ladder.index(0, at)
	e := s.rest
	e.Hi, e.Lo, e.Count = s.all, s.all-e.Lo, s.all-e.Count
	for level, width := range v.Ladder.width[:len(v.Ladder.levels)] {
		if n := s.older[level]; n > 0 {
			start := v.Ladder.index(level, from) * width
			part := min(start+width, at+1) - from
			e.Lo -= n
			e.Count -= n - share(n, part, width)
			e.Width = max(e.Width, width)
		}
		if n := s.newer[level]; n > 0 && !inside {
			e.Lo -= n
			if !live {
				e.Count -= n - share(n, at+1-v.Ladder.index(level, at)*width, width)
			}
			e.Width = max(e.Width, width)
		}
	}
	return e, true
}

// gather adds the cells of a counter that a window touches to its sums.
func (l *Ladder) gather(s *sums, c Counter, from, to int64) {
	if len(c) == 0 {
		return
	}
	for mask := c.mask(); mask != 0; mask &= mask - 1 {
		level := bits.TrailingZeros(mask)
		w := l.width[level]
		lo, hi := l.index(level, from), l.index(level, to)
		sum, first, last := l.ring(c, level).ends(lo, hi)
		s.all += sum
		if lo*w < from {
			s.older[level] += first
		}
		if (hi+1)*w-1 > to && (hi > lo || lo*w >= from) {
			s.newer[level] += last
		}
	}
	words := l.sparse(c)
	for i := len(words) - 1; i >= 0; i-- {
		at, n, level := l.stretch(words[i]), countOf(words[i]), kindOf(words[i])
		switch {
		case at.End() <= from:
			i = 0
		case at.Start > to:
		default:
			s.all += n
			if at.Start < from {
				s.older[level] += n
			} else if at.End()-1 > to {
				s.newer[level] += n
			}
		}
	}
	words = l.foreign(c)
	for i := 0; i < len(words); i += foreignWords {
		at, n := Stretch{int64(words[i]), int64(words[i+1])}, int64(words[i+2])
		if at.Start > to || at.End() <= from {
			continue
		}
		s.all += n
		if at.Start < from || at.End()-1 > to {
			s.rest.Lo += n
			part := min(at.End(), to+1) - max(at.Start, from)
			s.rest.Count += n - share(max(0, n), part, at.Width)
			s.rest.Width = max(s.rest.Width, at.Width)
		}
	}
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

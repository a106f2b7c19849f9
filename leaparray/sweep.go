package leaparray

import (
	"cmp"
	"slices"
)

// step is a moment at which the sum of a window that moves forward changes.
type step struct{ at, by int64 }

// sweep is a window that moves forward over the cells of a view. A cell enters it at its start, and
// leaves it a window after its last millisecond.
type sweep struct {
	enter, leave []step
	sum          int64
}

// sweepBuffer is how many cells a sweep can have without memory from the heap.
const sweepBuffer = 128

// newSweep returns the window of this length that ends at a moment. The steps that follow are
// appended to the two buffers.
func (v *View) newSweep(window, at int64, enter, leave []step) sweep {
	s := sweep{enter: enter, leave: leave}
	add := func(c Stretch, n int64) bool {
		if c.End()+window-1 <= at {
			return true
		}
		if c.Start <= at {
			s.sum += n
		} else {
			s.enter = append(s.enter, step{c.Start, n})
		}
		s.leave = append(s.leave, step{c.End() + window - 1, -n})
		return true
	}
	v.Ladder.EachCell(v.A, add)
	v.Ladder.EachCell(v.B, add)
	byTime := func(a, b step) int { return cmp.Compare(a.at, b.at) }
	slices.SortFunc(s.enter, byTime)
	slices.SortFunc(s.leave, byTime)
	return s
}

// next moves the window to the next moment at which its sum changes. It reports false if there is
// none.
func (s *sweep) next() (at int64, ok bool) {
	switch {
	case len(s.leave) == 0:
		return 0, false
	case len(s.enter) > 0:
		at = min(s.enter[0].at, s.leave[0].at)
	default:
		at = s.leave[0].at
	}
	for len(s.enter) > 0 && s.enter[0].at == at {
		s.sum += s.enter[0].by
		s.enter = s.enter[1:]
	}
	for len(s.leave) > 0 && s.leave[0].at == at {
		s.sum += s.leave[0].by
		s.leave = s.leave[1:]
	}
	return at, true
}

// Peak returns the largest sum of any window of this length that contains the given moment, where a
// window includes every cell that it touches. For the newest event that is the window ending there.
// For a late one it decides whether one more event at that moment would overfill a window that ends
// later. Peak reports false as Count does.
func (v View) Peak(window, at int64) (peak int64, ok bool) { return v.peak(window, at) }

func (v *View) peak(window, at int64) (peak int64, ok bool) {
	if !v.covers(window, at) {
		return 0, false
	}
	if n, _, ok := v.sumAfter(at-window+1, at); ok {
		return n, true
	}
	return v.sweepPeak(window, at), true
}

// sweepPeak is peak if there may be later cells.
func (v *View) sweepPeak(window, at int64) (peak int64) {
	var enter, leave [sweepBuffer]step
	s := v.newSweep(window, at, enter[:0], leave[:0])
	for peak = s.sum; ; peak = max(peak, s.sum) {
		if end, ok := s.next(); !ok || end >= at+window {
			return peak
		}
	}
}

// RetryAfter returns how many milliseconds after the given moment n more events fit under limit if
// nothing else is counted until then: 0 if they fit now, -1 if they never will because n alone
// exceeds limit. They do not fit a millisecond earlier. If the key no longer covers the window, it
// returns the length of the window.
//
// A window is overfull or not, by its end. A run of overfull ends excludes the moments from a
// window before its first end up to its last. The runs are in order, so one pass finds the first
// moment that none excludes.
func (v View) RetryAfter(window, at, n, limit int64) int64 {
	if n > limit {
		return -1
	}
	if !v.covers(window, at) {
		return window
	}
	var enter, leave [sweepBuffer]step
	s, room := v.newSweep(window, at, enter[:0], leave[:0]), limit-n
	free := at
	for end := at; end < free+window; {
		full := s.sum > room
		next, ok := s.next()
		if !ok {
			break
		}
		if full {
			free = next
		}
		end = next
	}
	return free - at
}

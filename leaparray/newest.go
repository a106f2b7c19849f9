package leaparray

import (
	"cmp"
	"slices"
)

// SelectNewest selects the n newest events, for a refund without a time. It calls fn for each cell
// that holds some of them, latest start first, with their number. The key may have fewer. It
// skips cells whose count is negative, and as many events around them.
func (v View) SelectNewest(n int64, fn func(s Stretch, n int64)) {
	var buffer [sweepBuffer]Cell
	list := buffer[:0]
	for s, n := range v.Cells() {
		list = append(list, Cell{s, n})
	}
	slices.SortFunc(list, func(a, b Cell) int {
		return cmp.Or(cmp.Compare(b.Start, a.Start), cmp.Compare(a.Width, b.Width))
	})
	list = SettleNegatives(merge(list))
	for i := 0; i < len(list) && n > 0; i++ {
		if take := min(n, list[i].N); take > 0 {
			fn(list[i].Stretch, take)
			n -= take
		}
	}
}

// SelectAt selects up to n events of one moment, for a refund with that time: from the cells that
// contain it, narrowest first. It calls fn for each with the number.
func (v View) SelectAt(ts, n int64, fn func(s Stretch, n int64)) {
	take := func(s Stretch) {
		if d := min(n, v.Value(s)); d > 0 {
			fn(s, d)
			n -= d
		}
	}
	take(Moment(ts))
	for level := 0; level < len(v.Ladder.levels) && n > 0; level++ {
		width := v.Ladder.width[level]
		take(Stretch{v.Ladder.index(level, ts) * width, width})
	}
	if n <= 0 || !v.A.HasForeign() && !v.B.HasForeign() {
		return
	}
	var around []Cell
	for s, n := range v.Cells() {
		if s.Start <= ts && s.End() > ts && v.Ladder.levelOf(s.Width) < 0 {
			around = append(around, Cell{s, n})
		}
	}
	slices.SortFunc(around, func(a, b Cell) int {
		return cmp.Or(cmp.Compare(a.Width, b.Width), cmp.Compare(b.Start, a.Start))
	})
	for _, c := range merge(around) {
		take(c.Stretch)
	}
}

// merge adds up neighbors that are the same cell.
func merge(list []Cell) []Cell {
	kept := list[:0]
	for _, c := range list {
		if last := len(kept) - 1; last >= 0 && kept[last].Stretch == c.Stretch {
			kept[last].N += c.N
		} else {
			kept = append(kept, c)
		}
	}
	return kept
}

// SettleNegatives settles cells whose count is negative, oldest partner first: with cells inside
// them, which the node that took events back has folded already; then with the cells that contain
// them, which the events may have folded into before the refund arrived; and then with all cells
// that overlap them, because the buckets of two nodes may overlap in part. It changes the list. A
// count that nothing offsets stays negative.
func SettleNegatives(list []Cell) []Cell {
	for i := range list {
		lack := &list[i]
		if lack.N >= 0 {
			continue
		}
		lack.settle(list, func(c Stretch) bool {
			return c.Start >= lack.Start && c.End() <= lack.End()
		})
		lack.settle(list, func(c Stretch) bool {
			return c.Start <= lack.Start && c.End() >= lack.End()
		})
		lack.settle(list, func(c Stretch) bool {
			return c.Start < lack.End() && c.End() > lack.Start
		})
	}
	return list
}

// settle makes up for a negative cell from the oldest chosen cells of a list.
func (lack *Cell) settle(list []Cell, chosen func(c Stretch) bool) {
	for lack.N < 0 {
		var oldest *Cell
		for j := range list {
			c := &list[j]
			if c.N > 0 && chosen(c.Stretch) && (oldest == nil || c.Start < oldest.Start) {
				oldest = c
			}
		}
		if oldest == nil {
			return
		}
		take := min(oldest.N, -lack.N)
		oldest.N -= take
		lack.N += take
	}
}

// MissingCells returns the cells that one node has to add to a store that has lost counts. The node
// knows some cells that the store had (known); other nodes have restored some already (restored).
// Once all nodes have added theirs, in any order, the store has as many events as the node with the
// most.
//
// Nodes may know the same events at different precision, because they have folded at different
// times. So MissingCells compares the sums of the widest cells on either side, with all cells
// inside them. If the restored cells are a part of the known ones, it adds the difference cell by
// cell. Otherwise it adds the difference to the widest cell: the events lie somewhere within it. If
// cells of different ladders overlap, it adds the difference to a bucket around all of them. Cells
// without events are marks, and make no difference.
func MissingCells(known, restored []Cell) (add []Cell) {
	type side struct {
		Cell
		restored bool
	}
	all := make([]side, 0, len(known)+len(restored))
	for _, c := range known {
		all = append(all, side{c, false})
	}
	for _, c := range restored {
		all = append(all, side{c, true})
	}
	all = slices.DeleteFunc(all, func(s side) bool { return s.N == 0 })
	slices.SortFunc(all, func(a, b side) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.Width, a.Width))
	})
	for len(all) > 0 {
		end, n := all[0].End(), 1
		for ; n < len(all) && all[n].Start < end; n++ {
			end = max(end, all[n].End())
		}
		whole := Cell{Stretch: Stretch{all[0].Start, end - all[0].Start}}
		diff, same := map[Stretch]int64{}, true
		for _, c := range all[:n] {
			if c.restored {
				c.N = -c.N
			}
			whole.N += c.N
			diff[c.Stretch] += c.N
		}
		for _, d := range diff {
			same = same && d >= 0
		}
		switch {
		case whole.N <= 0:
		case same:
			for s, d := range diff {
				if d > 0 {
					add = append(add, Cell{s, d})
				}
			}
		default:
			whole.Stretch = enclosingBucket(whole.Stretch)
			add = append(add, whole)
		}
		all = all[n:]
	}
	return add
}

// enclosingBucket returns a bucket that contains a stretch of time: the stretch itself, if it
// begins at a multiple of its width.
func enclosingBucket(s Stretch) Stretch {
	w := s.Width
	for s.Start%w+s.Width > w {
		w *= 2
	}
	return Stretch{s.Start - s.Start%w, w}
}

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
	for c, n := range v.Cells() {
		if c.End()+window-1 <= at {
			continue
		}
		if c.Start <= at {
			s.sum += n
		} else {
			s.enter = append(s.enter, step{c.Start, n})
		}
		s.leave = append(s.leave, step{c.End() + window - 1, -n})
	}
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

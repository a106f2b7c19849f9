package leaparray

import (
	"cmp"
	"slices"
)

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

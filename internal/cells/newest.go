package cells

import (
	"cmp"
	"slices"
)

// Newest calls fn for the cells that begin last and hold so many events together, with how many to
// take from each: so a refund that does not say when its events were takes the newest. There may be
// fewer. Cells of which others have taken back too much are left out.
func (v View) Newest(n int64, fn func(s Stretch, n int64)) {
	var buffer [sweepBuffer]Cell
	list := buffer[:0]
	add := func(s Stretch, n int64) bool {
		list = append(list, Cell{s, n})
		return true
	}
	v.Ladder.Each(v.A, add)
	v.Ladder.Each(v.B, add)
	slices.SortFunc(list, func(a, b Cell) int {
		return cmp.Or(cmp.Compare(b.Start, a.Start), cmp.Compare(a.Width, b.Width))
	})
	list = offset(merge(list))
	for i := 0; i < len(list) && n > 0; i++ {
		if take := min(n, list[i].N); take > 0 {
			fn(list[i].Stretch, take)
			n -= take
		}
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

// offset takes what cells lack from the cells around them: what was counted may have folded before
// it was taken back.
func offset(list []Cell) []Cell {
	for i := range list {
		lack := &list[i]
		for j := 0; j < len(list) && lack.N < 0; j++ {
			c := &list[j]
			if c.N > 0 && c.Start <= lack.Start && c.End() >= lack.End() {
				take := min(c.N, -lack.N)
				c.N -= take
				lack.N += take
			}
		}
	}
	return list
}

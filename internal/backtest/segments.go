package backtest

import (
	"cmp"
	"slices"

	"twotier.dev/twotier/leaparray"
)

// segment is a stretch of time, in unix milliseconds, in which a key had n events.
type segment struct {
	from, to int64 // from is included, to is not
	n        int64
}

// segments returns the history of a key up to the present, oldest first, without empty stretches.
// Each segment is a cell of the key. Cells that overlap, because nodes have counted the same time
// at different precision, form one segment.
func segments(v leaparray.View) (all []segment) {
	add := func(at leaparray.Stretch, n int64) bool {
		if n != 0 && at.Start <= v.Now {
			all = append(all, segment{at.Start, at.End(), n})
		}
		return true
	}
	v.Ladder.EachCell(v.A, add)
	v.Ladder.EachCell(v.B, add)
	slices.SortFunc(all, func(a, b segment) int { return cmp.Compare(a.from, b.from) })
	kept := all[:0]
	for _, s := range all {
		if last := len(kept) - 1; last >= 0 && kept[last].to > s.from {
			kept[last].to = max(kept[last].to, s.to)
			kept[last].n += s.n
		} else {
			kept = append(kept, s)
		}
	}
	// Corrections may exceed the count; the segment is then empty.
	return slices.DeleteFunc(kept, func(s segment) bool { return s.n <= 0 })
}

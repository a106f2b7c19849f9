package cells

import (
	"cmp"
	"slices"
)

// Missing returns what has to be added to a store that has lost counts, by somebody who knows what
// it had (known), when others have already restored so much of it (restored). In whatever order all
// who know something do so, the store has in the end what the one who knows most knew.
//
// They may know the same events at different precision, because they have folded at different
// times. So what is compared are the sums of the widest cells on either side, with all that lies
// within. What is missing from one of these is added cell by cell if what was restored has the same
// cells, and as a whole otherwise: then nobody can tell where within it the events are.
func Missing(known, restored []Cell) (add []Cell) {
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
			add = append(add, whole)
		}
		all = all[n:]
	}
	return add
}

package embedded

import (
	"cmp"
	"slices"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// cells are counts ordered by start, then by width, the narrowest first. A cell of zero stays: in
// the finest width it marks that events lie ahead of the present.
type cells []leaparray.Cell

// find returns the position of a cell, and whether it exists. Most lookups are for the end.
func (c cells) find(s leaparray.Stretch) (at int, found bool) {
	if n := len(c); n == 0 || compare(c[n-1], s) < 0 {
		return n, false
	}
	return slices.BinarySearchFunc(c, s, compare)
}

func compare(c leaparray.Cell, s leaparray.Stretch) int {
	return cmp.Or(cmp.Compare(c.Start, s.Start), cmp.Compare(c.Width, s.Width))
}

func (c cells) get(s leaparray.Stretch) int64 {
	if at, found := c.find(s); found {
		return c[at].N
	}
	return 0
}

// add adds n to a cell, creates it if necessary, and returns the result. Of a value it keeps the
// later time, and deletes it for a negative one, unless it was seen later.
func (c *cells) add(s leaparray.Stretch, n int64) int64 {
	at, found := c.find(s)
	if s.IsValue() {
		switch {
		case !found && n < 0:
			return 0
		case found && n < 0 && -n >= (*c)[at].N:
			*c = slices.Delete(*c, at, at+1)
			return 0
		case found:
			(*c)[at].N = max((*c)[at].N, n)
			return (*c)[at].N
		}
	}
	if !found {
		*c = slices.Insert(*c, at, leaparray.Cell{Stretch: s})
	}
	sum := syncer.AddCounts((*c)[at].N, n)
	if (*c)[at].N = sum; sum == 0 && n != 0 { // all was taken back
		*c = slices.Delete(*c, at, at+1)
	}
	return sum
}

// nonZero returns the non-zero cells of a list.
func nonZero(list []leaparray.Cell) cells {
	return slices.DeleteFunc(slices.Clone(list),
		func(c leaparray.Cell) bool { return c.N == 0 })
}

package redisstore

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/syncer"
)

// load replaces the content of a key by the flat list of its fields and values.
func (k *heldKey) load(flat []string, now int64) {
	k.version, k.err, k.counts, k.stored, k.raw = "", nil, nil, nil, nil
	k.guessed = false
	k.changed, k.extends, k.foldAt = false, false, 0
	k.values.list = k.values.list[:0]
	k.moments.reset()
	buckets := k.decode(flat)
	lacks := slices.ContainsFunc(buckets, func(b syncer.Bucket) bool { return b.N < 0 })
	k.values.sortLoaded()
	if err := syncer.CheckCounts(buckets); err != nil {
		k.err = fmt.Errorf("%w: Redis refuses this key: %w", twotier.ErrUnavailable, err)
		return
	}
	cells := make([]leaparray.Cell, len(buckets))
	for i, b := range buckets {
		cells[i] = leaparray.Cell{Stretch: b.Stretch, N: b.N}
	}
	if lacks {
		k.stored, k.raw = cells, slices.Clone(cells)
		k.settleRaw(now)
		return
	}
	k.counts = viewOf(k.ladder, cells, now).A
	if !k.holds(cells) {
		k.stored = cells
	}
}

// decode records the version, the values and the lists of a flat list of fields and values, and
// returns its buckets.
func (k *heldKey) decode(flat []string) []syncer.Bucket {
	buckets := make([]syncer.Bucket, 0, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		if flat[i] == versionField {
			k.version = flat[i+1]
			continue
		}
		if list, ok := layout.ParseMoments(flat[i], flat[i+1]); ok {
			k.moments.load(flat[i], flat[i+1])
			list.Each(func(t, n int64) {
				buckets = append(buckets, syncer.Bucket{Stretch: leaparray.Moment(t), N: n})
			})
			continue
		}
		at, ok := layout.ParseField(flat[i])
		switch {
		case flat[i] == layout.OpenField:
			n := int64(syncer.NoCount) // Redis would refuse to count anything
			buckets = append(buckets, syncer.Bucket{N: n})
			continue
		case !ok:
			continue
		case at.Width == 1:
			k.moments.plain = append(k.moments.plain, at.Start)
		}
		n, err := strconv.ParseInt(flat[i+1], 10, 64)
		if err != nil || layout.Number(n) != flat[i+1] {
			n = syncer.NoCount // HINCRBY would refuse it
		}
		if at.IsValue() && n > 0 {
			k.values.list = append(k.values.list, at.ValueHash(), uint64(n))
			continue
		}
		buckets = append(buckets, syncer.Bucket{Stretch: at, N: n})
	}
	if len(k.moments.lists) > 0 {
		buckets = layout.MergeMoments(buckets)
	}
	return buckets
}

// holds reports whether the counts have exactly these cells.
func (k *heldKey) holds(cells []leaparray.Cell) bool {
	mark, marked := k.ladder.Marked(k.counts)
	n := 0
	for _, c := range cells {
		isMark := marked && c.Stretch == mark
		if c.N != k.ladder.Value(k.counts, c.Stretch) || c.N == 0 && !isMark {
			return false
		}
		if c.N != 0 {
			n++
		}
	}
	return n == k.ladder.CellCount(k.counts)
}

// settleRaw makes the counts of the raw cells, which it folds if there are many.
func (k *heldKey) settleRaw(now int64) {
	if len(k.raw) > k.ladder.MaxCells() {
		for _, f := range k.ladder.ListFolds(k.raw, now, 0) {
			k.raw = slices.DeleteFunc(k.raw, func(c leaparray.Cell) bool {
				return c.Stretch == f.Stretch
			})
			if f.Into.Width > 0 {
				k.addRaw(f.Into, f.N)
			}
		}
	}
	k.counts = viewOf(k.ladder, leaparray.SettleNegatives(slices.Clone(k.raw)), now).A
}

// addRaw adds n to a raw cell. One that becomes zero is deleted, unless it may be a mark.
func (k *heldKey) addRaw(at leaparray.Stretch, n int64) {
	i := slices.IndexFunc(k.raw, func(c leaparray.Cell) bool { return c.Stretch == at })
	switch {
	case i < 0:
		k.raw = append(k.raw, leaparray.Cell{Stretch: at, N: n})
	case k.raw[i].N+n == 0 && at.Width != k.ladder.Width(0):
		k.raw = slices.Delete(k.raw, i, i+1)
	default:
		k.raw[i].N += n
	}
}

// viewOf returns a view of a hash's cells, which it sorts. A count that is still negative reads as
// zero, see syncer.CheckCounts.
func viewOf(l *leaparray.Ladder, cells []leaparray.Cell, now int64) leaparray.View {
	// A newer bucket would push out older ones that have not folded yet.
	slices.SortFunc(cells, func(a, b leaparray.Cell) int {
		return cmp.Or(cmp.Compare(b.End(), a.End()), cmp.Compare(b.Start, a.Start))
	})
	v := leaparray.View{Ladder: l, Now: now}
	for _, c := range cells {
		switch {
		case c.N > 0:
			v.Put(&v.A, leaparray.Heap{}, c.Stretch, c.N)
		case c.N == 0 && c.Width == l.Width(0):
			v.Mark(&v.A, leaparray.Heap{}, c.Stretch)
		}
	}
	return v
}

package redisstore

import (
	"cmp"
	"fmt"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/syncer"
)

// load replaces the content of a key by the flat list of its fields and values.
func (k *heldKey) load(flat []string, now int64) {
	k.version, k.err, k.fields, k.counts, k.raw = "", nil, nil, nil, nil
	k.guessed, k.changed, k.extends, k.foldAt = false, false, false, 0
	var c layout.Content
	for i := 0; i+1 < len(flat); i += 2 {
		name, value := flat[i], flat[i+1]
		switch {
		case name == layout.VersionField:
			k.version = value
		case c.Add(name, value) && !layout.IsValueField(name):
			k.fields = append(k.fields, heldField{name, value})
		}
	}
	buckets := k.values.load(c.Sum())
	if err := syncer.CheckCounts(buckets); err != nil {
		k.err = fmt.Errorf("%w: Redis refuses this key: %w", twotier.ErrUnavailable, err)
		return
	}
	k.raw = make([]leaparray.Cell, len(buckets))
	for i, b := range buckets {
		k.raw[i] = leaparray.Cell{Stretch: b.Stretch, N: b.N}
	}
	k.settleRaw(now)
}

// settleRaw makes the counts of the raw cells, which it folds if there are many. Unless some are
// negative, it forgets them.
func (k *heldKey) settleRaw(now int64) {
	k.widest = anyWidth
	if !slices.ContainsFunc(k.raw, func(c leaparray.Cell) bool { return c.N < 0 }) {
		k.counts, k.raw = viewOf(k.ladder, k.raw, now).A, nil
		return
	}
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

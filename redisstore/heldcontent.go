package redisstore

import (
	"cmp"
	"fmt"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/decide"
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

// heldField is a field of a key's Hash.
type heldField struct{ name, value string }

// cellWriter encodes what keys count. Its memory is reused.
type cellWriter struct {
	pages layout.Pages
	cells []syncer.Bucket
}

// write encodes what a key counts. It calls set for each field that the Hash lacks or has with
// another value, and remove for each that it has too many.
func (w *cellWriter) write(k *heldKey, set func(name, value string), remove func(name string)) {
	w.cells = k.appendCells(w.cells[:0])
	n := 0
	w.pages.Each(w.cells, nil, func(name, value []byte) {
		i := slices.IndexFunc(k.fields[n:], func(f heldField) bool {
			return f.name == string(name)
		})
		if i < 0 {
			k.fields = slices.Insert(k.fields, n, heldField{name: string(name)})
			i = 0
		}
		k.fields[n], k.fields[n+i] = k.fields[n+i], k.fields[n]
		if f := &k.fields[n]; f.value != string(value) {
			f.value = string(value)
			set(f.name, f.value)
		}
		n++
	})
	k.fields = append(k.fields[:n], slices.DeleteFunc(k.fields[n:], func(f heldField) bool {
		gone := layout.PageWidth(f.name) <= k.widest
		if gone {
			remove(f.name)
		}
		return gone
	})...)
	k.widest = 0
}

// appendCells appends the cells that a key counts and that may have changed, in the order of
// syncer.Bucket.Compare.
func (k *heldKey) appendCells(list []syncer.Bucket) []syncer.Bucket {
	sorted, last := true, leaparray.Stretch{}
	add := func(s leaparray.Stretch, n int64) {
		sorted = sorted && (s.Width > last.Width || s.Width == last.Width && s.Start > last.Start)
		list, last = append(list, syncer.Bucket{Stretch: s, N: n}), s
	}
	if k.raw != nil {
		for _, c := range k.raw {
			add(c.Stretch, c.N)
		}
	} else {
		k.ladder.EachUpTo(k.counts, k.widest, add)
		if mark, ok := k.ladder.Marked(k.counts); ok && mark.Width <= k.widest {
			add(mark, 0)
		}
	}
	if !sorted {
		slices.SortFunc(list, syncer.Bucket.Compare)
	}
	return list
}

// heldValues are the different values of a key, with the changes that a worker is about to make.
type heldValues struct {
	// most is how many values are kept before a sample stands for them. It is 0 for a key that has
	// counts in place of values.
	most int
	list leaparray.ValueList
	// changed are the pairs that are not in Redis yet, in no order.
	changed leaparray.ValueList
}

// load replaces the list by the values that cells in the order of syncer.Bucket.Compare begin with.
// It returns the rest: with those that hold no time, which are refused.
func (v *heldValues) load(cells []syncer.Bucket) (rest []syncer.Bucket) {
	v.list, v.changed = v.list[:0], v.changed[:0]
	n, negative := 0, 0 // the order of the cells is that of signed hashes
	for ; n < len(cells) && cells[n].IsValue() && cells[n].N > 0; n++ {
		if cells[n].Start < 0 {
			negative++
		}
	}
	for _, b := range slices.Concat(cells[negative:n], cells[:negative]) {
		v.list = append(v.list, b.ValueHash(), uint64(b.N))
	}
	return cells[n:]
}

func (v *heldValues) view() leaparray.ValuesView { return leaparray.ValuesView{A: v.list} }

// known returns what a decision about the key goes by.
func (k *heldKey) known(now int64) decide.Key {
	return decide.Key{View: k.view(now), Values: k.values.view()}
}

// mostFields returns how many fields a key of this ladder may have, if it keeps this many values.
func mostFields(l *leaparray.Ladder, values int) int { return max(l.MaxCells(), values) }

// see adds values that were seen at a time.
func (k *heldKey) see(hashes []uint64, at, now int64) {
	k.changed = true
	v, width := &k.values, k.ladder.CoarsestWidth()
	k.extends = k.extends || at/width > v.list.Latest()/width
	last := len(v.changed)
	v.view().See(hashes, at, now-k.ladder.Span(), v.most, func(hash uint64, seen int64) {
		if v.list.Seen(hash) != seen {
			v.changed = append(v.changed, hash, uint64(seen))
		}
	})
	for more := v.changed[last:]; len(more) > 0; more = more[2:] {
		v.list = v.list.With(more.At(0))
	}
}

// writeValues calls set for each value that has changed, and remove for each that is dropped.
func (k *heldKey) writeValues(now int64, set func(name, value string), remove func(name string)) {
	k.dropIdle(now, remove)
	v := &k.values
	for i := range v.changed.Len() {
		if hash, seen := v.changed.At(i); v.list.Seen(hash) == seen { // it is the last change
			set(layout.ValueField(hash), layout.Number(seen))
		}
	}
	v.changed = v.changed[:0]
}

// dropIdle drops the values that no window needs, if these are more than an eighth. It calls remove
// for each.
func (k *heldKey) dropIdle(now int64, remove func(name string)) {
	v, n := &k.values, 0
	until := now - k.ladder.Span() - leaparray.MaxAhead.Milliseconds() // for a clock that is behind
	v.view().EachIdle(until, func(uint64, int64) { n++ })
	if 8*n <= v.list.Len() {
		return
	}
	k.extends = true // without its idle values, the key may be gone before others are written
	idle := make([]uint64, 0, n)
	v.view().EachIdle(until, func(hash uint64, _ int64) {
		idle = append(idle, hash)
		remove(layout.ValueField(hash))
	})
	kept := v.list[:0]
	for i := range v.list.Len() {
		hash, seen := v.list.At(i)
		if len(idle) > 0 && idle[0] == hash {
			idle = idle[1:]
			continue
		}
		kept = append(kept, hash, uint64(seen))
	}
	v.list = kept
}

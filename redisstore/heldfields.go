package redisstore

import (
	"slices"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/syncer"
)

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

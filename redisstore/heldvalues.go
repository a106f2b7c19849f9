package redisstore

import (
	"slices"

	"twotier.dev/twotier/decide"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/syncer"
)

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

// view returns a view of the values.
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

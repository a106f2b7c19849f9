package redisstore

import (
	"sort"

	"twotier.dev/twotier/decide"
	"twotier.dev/twotier/leaparray"
)

// heldValues are the different values of a key, with the changes that a worker is about to make.
type heldValues struct {
	// most is how many values are kept before a sample stands for them. It is 0 for a key that has
	// counts in place of values.
	most         int
	list, before leaparray.ValueList
	seen         leaparray.ValueList // scratch memory
}

// sortLoaded sorts the list as it was read from a Hash.
func (v *heldValues) sortLoaded() { sort.Sort(byHash{v.list}) }

// byHash sorts the pairs of a list.
type byHash struct{ leaparray.ValueList }

func (l byHash) Less(i, j int) bool { return l.ValueList[2*i] < l.ValueList[2*j] }

func (l byHash) Swap(i, j int) {
	a := l.ValueList
	a[2*i], a[2*i+1], a[2*j], a[2*j+1] = a[2*j], a[2*j+1], a[2*i], a[2*i+1]
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
	k.begin()
	v, width := &k.values, k.ladder.CoarsestWidth()
	k.extends = k.extends || at/width > v.list.Latest()/width
	v.seen = v.seen[:0]
	v.view().See(hashes, at, now-k.ladder.Span(), v.most, func(hash uint64, seen int64) {
		v.seen = append(v.seen, hash, uint64(seen))
	})
	for i := range v.seen.Len() {
		hash, seen := v.seen.At(i)
		v.list = v.list.With(hash, seen)
		k.touched = append(k.touched, leaparray.ValueAt(hash))
	}
}

// dropIdle drops the values that no window needs, if these are more than an eighth.
func (k *heldKey) dropIdle(now int64) {
	v, last := &k.values, len(k.touched)
	until := now - k.ladder.Span() - leaparray.MaxAhead.Milliseconds() // for a clock that is behind
	v.view().EachIdle(until, func(hash uint64, _ int64) {
		k.touched = append(k.touched, leaparray.ValueAt(hash))
	})
	idle := k.touched[last:]
	if 8*len(idle) <= v.list.Len() {
		k.touched = k.touched[:last]
		return
	}
	k.extends = true // without its idle values, the key may be gone before others are written
	kept := v.list[:0]
	for i := range v.list.Len() {
		hash, seen := v.list.At(i)
		if len(idle) > 0 && idle[0].ValueHash() == hash {
			idle = idle[1:]
			continue
		}
		kept = append(kept, hash, uint64(seen))
	}
	v.list = kept
}

// changesOfValues is changes of a key that has values.
func (k *heldKey) changesOfValues(set func(s leaparray.Stretch, was, n int64),
	gone func(s leaparray.Stretch)) {
	for _, s := range sortedStretches(k.touched) {
		was, seen := k.values.before.Seen(s.ValueHash()), k.values.list.Seen(s.ValueHash())
		switch {
		case seen == was:
		case seen == 0:
			gone(s)
		default:
			set(s, was, seen)
		}
	}
}

package redisstore

import (
	"cmp"
	"slices"
	"strings"

	"twotier.dev/twotier/leaparray"
)

// versionField is the field of a key's Hash with its version, see commit.lua.
const versionField = "v"

// claimMark is what the version of a claimed key begins with.
const claimMark = "!"

// notExisting stands for the version of a key that must not exist.
const notExisting = "-"

// heldKey is what a worker holds of a key: its content in Redis when it was last read or written,
// with the changes that the worker is about to make.
type heldKey struct {
	name      string
	partition int
	hash      uint32
	ladder    *leaparray.Ladder

	// generation is that of the partition when the key was read: 0 if it was not. In another
	// generation of the partition, somebody else may have changed the key.
	generation uint32
	version    string // as in commit.lua
	guessed    bool   // the key was not read: it is believed not to exist
	counts     leaparray.Counter
	// stored has the cells of the Hash, if they are not those of counts: some are negative, or
	// counts has folded some. raw are these cells with the changes, if some are negative: counts is
	// then made of them anew after each change. Both are in the order of the Hash.
	stored, raw []leaparray.Cell
	values      heldValues
	moments     heldMoments
	err         error // why the key can't be used
	foldAt      int   // the number of cells from which on it may have to fold

	words    int // that it is accounted for
	fetching bool
	group    *directGroup // of the batch under way
	before   leaparray.Counter
	changed  bool
	touched  []leaparray.Stretch // the cells that may have changed
	folded   bool                // others may have changed as well
	extends  bool                // its time to live has to be set anew
}

// heldKeys are the keys that a worker holds, in two generations: once the younger one is full, it
// replaces the older one.
type heldKeys struct {
	young, old map[string]*heldKey
	words, max int // of the younger generation
}

func newHeldKeys(bytes int) heldKeys {
	return heldKeys{young: map[string]*heldKey{}, max: bytes / 8 / 2}
}

// heldWords is about how many words a key takes besides its counts.
const heldWords = 40

// find returns a key by the name of its hash, or nil.
func (h *heldKeys) find(name []byte) *heldKey {
	if k := h.young[string(name)]; k != nil {
		return k
	}
	k := h.old[string(name)]
	if k != nil {
		h.put(k)
	}
	return k
}

// put holds a key in the younger generation.
func (h *heldKeys) put(k *heldKey) {
	h.young[k.name], k.words = k, 0
	h.account(k)
}

// account brings the size of a key up to date.
func (h *heldKeys) account(k *heldKey) {
	words := heldWords + len(k.name)/8 + cap(k.counts) + cap(k.before) + 2*cap(k.touched) +
		3*(cap(k.stored)+cap(k.raw)) + 3*cap(k.values.list) + k.moments.words()
	h.words += words - k.words
	k.words = words
}

// rotate makes room before a batch: no key may come and go during one.
func (h *heldKeys) rotate() {
	if h.words > h.max {
		h.old, h.young, h.words = h.young, map[string]*heldKey{}, 0
	}
}

func (h *heldKeys) remove(k *heldKey) {
	delete(h.young, k.name)
	delete(h.old, k.name)
}

// view returns a view of the key.
func (k *heldKey) view(now int64) leaparray.View {
	return leaparray.View{Ladder: k.ladder, A: k.counts, Now: now}
}

// begin begins to change a key.
func (k *heldKey) begin() {
	if !k.changed {
		k.before, k.changed = append(k.before[:0], k.counts...), true
		k.values.before = append(k.values.before[:0], k.values.list...)
		k.touched, k.folded = k.touched[:0], false
	}
}

// add adds n to a cell.
func (k *heldKey) add(at leaparray.Stretch, n, now int64) {
	k.begin()
	if n > 0 && !k.extends {
		width := k.ladder.CoarsestWidth()
		from := at.Start - at.Start%width
		v := k.view(now)
		k.extends = v.UpperBound(from, from+width-1) == 0
	}
	if k.raw != nil {
		k.addRaw(at, n)
		k.settleRaw(now)
		return
	}
	if last := len(k.touched) - 1; last < 0 || k.touched[last] != at {
		k.touched = append(k.touched, at)
	}
	if _, ok := k.ladder.Add(k.counts, at, n); ok {
		return
	}
	v := k.view(now)
	dropped, folded := v.Put(&v.A, leaparray.Heap{}, at, n)
	k.counts, k.folded = v.A, k.folded || folded || dropped != 0
}

// markAhead records that an event lies ahead of the present.
func (k *heldKey) markAhead(ts, now int64) {
	beyond := k.ladder.BucketAfter(ts)
	if mark, ok := k.ladder.NewestBucket(k.counts); ok && mark.Start >= beyond.Start {
		return
	}
	if k.raw != nil {
		k.addRaw(beyond, 0)
	}
	v := k.view(now)
	dropped, folded := v.Mark(&v.A, leaparray.Heap{}, beyond)
	k.counts, k.folded = v.A, k.folded || folded || dropped != 0
}

// manyDue is how many cells have to be due for a key to fold before it has more than its ladder
// needs.
const manyDue = 32

// foldGrown folds a changed key if it has many cells that are due, or more than it may have. It
// returns how many have folded.
func (k *heldKey) foldGrown(now int64) (folds int) {
	n := k.ladder.CellCount(k.counts)
	if k.raw != nil || n < min(max(k.foldAt, manyDue), k.ladder.MaxCells()) {
		return 0
	}
	v := k.view(now)
	from := v.ExactFrom()
	k.ladder.EachCell(k.counts, func(s leaparray.Stretch, _ int64) bool {
		if into, due := k.ladder.FoldTarget(s, now); due && into.End() <= from {
			folds++
		}
		return true
	})
	if folds < manyDue && (folds == 0 || n <= k.ladder.MaxCells()) {
		k.foldAt = n + manyDue - folds
		return 0
	}
	v.Fold(leaparray.Heap{}, from)
	k.counts, k.folded = v.A, true
	k.foldAt = n - folds + manyDue
	return folds
}

// changes calls set for each cell of the Hash that has to be written, with what it held, and gone
// for those to delete.
func (k *heldKey) changes(set func(s leaparray.Stretch, was, n int64),
	gone func(s leaparray.Stretch)) {
	l := k.ladder
	if k.values.most > 0 {
		k.changesOfValues(set, gone)
		return
	}
	if k.stored != nil {
		k.changesOfStored(set, gone)
		return
	}
	if k.folded {
		add := func(s leaparray.Stretch, _ int64) bool {
			k.touched = append(k.touched, s)
			return true
		}
		l.EachCell(k.counts, add)
		l.EachCell(k.before, add)
	}
	for _, s := range sortedStretches(k.touched) {
		was, n := l.Value(k.before, s), l.Value(k.counts, s)
		switch {
		case n == was:
		case n == 0:
			gone(s)
		default:
			set(s, was, n)
		}
	}
	was, hadMark := l.Marked(k.before)
	mark, hasMark := l.Marked(k.counts)
	if hadMark && (!hasMark || was != mark) && l.Value(k.counts, was) == 0 {
		gone(was)
	}
	if hasMark && (!hadMark || was != mark) && l.Value(k.before, mark) == 0 {
		set(mark, 0, 0)
	}
}

// sortedStretches sorts a list in the order of time, and leaves each out but once.
func sortedStretches(list []leaparray.Stretch) []leaparray.Stretch {
	slices.SortFunc(list, func(a, b leaparray.Stretch) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Width, b.Width))
	})
	return slices.Compact(list)
}

// changesOfStored is changes by the stored cells.
func (k *heldKey) changesOfStored(set func(s leaparray.Stretch, was, n int64),
	gone func(s leaparray.Stretch)) {
	target := k.raw
	if target == nil {
		k.ladder.EachCell(k.counts, func(s leaparray.Stretch, n int64) bool {
			target = append(target, leaparray.Cell{Stretch: s, N: n})
			return true
		})
		if mark, ok := k.ladder.Marked(k.counts); ok {
			target = append(target, leaparray.Cell{Stretch: mark})
		}
	}
	stored := make(map[leaparray.Stretch]int64, len(k.stored))
	for _, c := range k.stored {
		stored[c.Stretch] = c.N
	}
	for _, c := range target {
		if was, ok := stored[c.Stretch]; !ok || was != c.N {
			set(c.Stretch, was, c.N)
		}
		delete(stored, c.Stretch)
	}
	for s := range stored {
		gone(s)
	}
}

// expected returns what the key must have for a version, for what is held to be true.
func (k *heldKey) expected() string {
	if k.guessed {
		return notExisting
	}
	return k.version
}

// claimed reports whether the key was claimed when it was read. A change gives the claim up.
func (k *heldKey) claimed() bool { return strings.HasPrefix(k.version, claimMark) }

// settle is called when Redis has the changes of a key, with its new version.
func (k *heldKey) settle(version string) {
	if k.changed || k.claimed() {
		k.version = version
		k.stored = slices.Clone(k.raw)
	}
	k.group, k.changed, k.extends, k.guessed = nil, false, false, false
}

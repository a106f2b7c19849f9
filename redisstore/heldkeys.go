package redisstore

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/syncer"
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
		3*(cap(k.stored)+cap(k.raw)) + 3*cap(k.values.list)
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

// load replaces the content of a key by the flat list of its fields and values.
func (k *heldKey) load(flat []string, now int64) {
	k.version, k.err, k.counts, k.stored, k.raw = "", nil, nil, nil, nil
	k.guessed = false
	k.changed, k.extends, k.foldAt = false, false, 0
	k.values.list = k.values.list[:0]
	buckets, lacks := make([]syncer.Bucket, 0, len(flat)/2), false
	for i := 0; i+1 < len(flat); i += 2 {
		if flat[i] == versionField {
			k.version = flat[i+1]
			continue
		}
		at, ok := layout.ParseField(flat[i])
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(flat[i+1], 10, 64)
		if err != nil || layout.Number(n) != flat[i+1] {
			n = syncer.NoCount // HINCRBY would refuse it
		}
		if at.IsValue() && n > 0 {
			k.values.list = append(k.values.list, at.ValueHash(), uint64(n))
			continue
		}
		lacks = lacks || n < 0
		buckets = append(buckets, syncer.Bucket{Stretch: at, N: n})
	}
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

// changes calls set for each cell of the Hash that has to be written, and gone for those to delete.
func (k *heldKey) changes(set func(s leaparray.Stretch, n int64), gone func(s leaparray.Stretch)) {
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
			set(s, n)
		}
	}
	was, hadMark := l.Marked(k.before)
	mark, hasMark := l.Marked(k.counts)
	if hadMark && (!hasMark || was != mark) && l.Value(k.counts, was) == 0 {
		gone(was)
	}
	if hasMark && (!hadMark || was != mark) && l.Value(k.before, mark) == 0 {
		set(mark, 0)
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
func (k *heldKey) changesOfStored(set func(s leaparray.Stretch, n int64),
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
			set(c.Stretch, c.N)
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

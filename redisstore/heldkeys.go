package redisstore

import (
	"math"
	"strings"

	"twotier.dev/twotier/leaparray"
)

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
	// fields are those of its Hash that count: as they were read, or as they are about to be.
	fields []heldField
	counts leaparray.Counter
	// raw are the cells if some are negative: counts is then made of them anew after each change.
	raw    []leaparray.Cell
	values heldValues
	err    error // why the key can't be used
	foldAt int   // the number of cells from which on it may have to fold

	words    int // that it is accounted for
	fetching bool
	group    *directGroup // of the batch under way
	changed  bool
	widest   int64 // no cell that is wider has changed
	extends  bool  // its time to live has to be set anew
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
	words := heldWords + len(k.name)/8 + cap(k.counts) + 3*cap(k.raw) + 4*cap(k.fields) +
		cap(k.values.list) + cap(k.values.changed)
	for _, f := range k.fields {
		words += (len(f.name) + len(f.value)) / 8
	}
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

func (k *heldKey) view(now int64) leaparray.View {
	return leaparray.View{Ladder: k.ladder, A: k.counts, Now: now}
}

// anyWidth is the widest of a key whose cells may all have changed.
const anyWidth = math.MaxInt64

// add adds n to a cell.
func (k *heldKey) add(at leaparray.Stretch, n, now int64) {
	k.changed, k.widest = true, max(k.widest, at.Width)
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
	if _, ok := k.ladder.Add(k.counts, at, n); ok {
		return
	}
	v := k.view(now)
	v.Put(&v.A, leaparray.Heap{}, at, n)
	k.counts, k.widest = v.A, anyWidth // others may have folded
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
	v.Mark(&v.A, leaparray.Heap{}, beyond)
	k.counts, k.widest = v.A, anyWidth
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
	k.counts, k.widest = v.A, anyWidth
	k.foldAt = n - folds + manyDue
	return folds
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
	}
	k.group, k.changed, k.extends, k.guessed = nil, false, false, false
}

// guess takes a key for one that does not exist.
func (k *heldKey) guess(generation uint32) {
	k.load(nil, 0)
	k.guessed, k.generation = true, generation
}

// guesses learns how many of the keys that a worker does not hold exist. If nearly none does, it is
// faster not to read them.
type guesses struct{ existing int } // a moving average, of one key in this many

const (
	guessUnit = 1 << 16
	guessRate = 256 // how many keys the average remembers, about
)

// learn records whether a key existed.
func (g *guesses) learn(existed bool) {
	g.existing -= g.existing / guessRate
	if existed {
		g.existing += guessUnit / guessRate
	}
}

// absent reports whether the next key probably does not exist.
func (g *guesses) absent() bool { return g.existing < guessUnit/8 }

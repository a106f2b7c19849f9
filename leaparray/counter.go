package leaparray

import "iter"

// Counter holds the cells of one key in a flat block of words. A nil or empty block is an empty
// counter. Its layout:
//
//	word 0     bits 0-5: mask of the dense levels; bits 6-18: number of sparse cells;
//	           bits 19-31: number of foreign cells; bits 32-63 belong to the Allocator
//	word 1     bits 0-15: how many of the sparse cells are buckets; bits 16-63: sum of all of them
//	rings      one for each dense level, finest first
//	sparse     a word for each cell: end (42 bits), kind (3 bits), count (19 bits, signed);
//	           buckets first, then moments, both in ascending order
//	foreign    three words for each cell: its start, width and count; the rest is free
//
// The kind of a sparse cell is the level of the bucket, or it is a moment. Foreign cells have
// another width, a count that does not fit in 19 bits, or are too old for the ring of their level.
// A level becomes dense when more than half of its buckets are live or a count does not fit.
type Counter []uint64

const (
	countBits = 19
	kindBits  = 3
	endShift  = countBits + kindBits
	maxSparse = 1<<(countBits-1) - 1
	maxEnd    = 1<<(64-endShift) - 1 // in the year 2109

	bucketBits = 16
	bucketMask = 1<<bucketBits - 1

	head         = 2 // words before the rings
	maskBits     = 6
	lenBits      = 13
	lenMask      = 1<<lenBits - 1
	foreignShift = maskBits + lenBits
	foreignWords = 3
)

// The kinds of cells that are not the number of a level.
const (
	foreign = MaxLevels
	moment  = MaxLevels + 1
	kinds   = MaxLevels + 2
)

// Change is an operation's change in the number of cells that are not zero.
type Change int

func (c Counter) mask() uint { return uint(c[0] & (1<<maskBits - 1)) }

func (c Counter) sparseLen() int { return int(c[0] >> maskBits & lenMask) }

func (c Counter) foreignLen() int { return int(c[0] >> foreignShift & lenMask) }

func (c Counter) dense(level int) bool { return c[0]&(1<<level) != 0 }

// HasForeign reports whether a counter has foreign cells.
func (c Counter) HasForeign() bool { return len(c) > 0 && c.foreignLen() > 0 }

// isEmpty reports whether a counter has no cells, not even a mark.
func (c Counter) isEmpty() bool { return len(c) == 0 || uint32(c[0]) == 0 }

// adjustLens changes the number of sparse and of foreign cells.
func (c Counter) adjustLens(sparse, foreign int) {
	c[0] += uint64(int64(sparse)<<maskBits + int64(foreign)<<foreignShift)
}

// foreign returns the words of the foreign cells.
func (l *Ladder) foreign(c Counter) []uint64 {
	n := c.foreignLen()
	if n == 0 {
		return nil
	}
	at := int(l.start[c.mask()][MaxLevels]) + c.sparseLen()
	return c[at : at+n*foreignWords]
}

// foreignCells iterates over the foreign cells and their counts.
func (l *Ladder) foreignCells(c Counter) iter.Seq2[Stretch, int64] {
	return func(yield func(Stretch, int64) bool) {
		for w := l.foreign(c); len(w) > 0; w = w[foreignWords:] {
			if !yield(Stretch{int64(w[0]), int64(w[1])}, int64(w[2])) {
				return
			}
		}
	}
}

func (l *Ladder) ring(c Counter, level int) ring {
	at := int(l.start[c.mask()][level])
	return ring(c[at : at+ringHead+l.slots[level]])
}

// levelOf returns the level whose buckets have this width, moment for a width of 1, or -1.
func (l *Ladder) levelOf(width int64) int {
	if width == 1 {
		return moment
	}
	for level, w := range l.width[:len(l.levels)] {
		if w == width {
			return level
		}
	}
	return -1
}

// classify returns how a counter stores a stretch, and its position: the index of a bucket, or a
// moment.
func (l *Ladder) classify(c Counter, s Stretch) (kind int, pos int64) {
	kind = l.levelOf(s.Width)
	switch {
	case kind < 0 || uint64(s.End()) > maxEnd:
		return foreign, s.Start
	case kind == moment:
		return moment, s.Start
	}
	pos = l.index(kind, s.Start)
	if len(c) > 0 && c.dense(kind) {
		if r := l.ring(c, kind); pos < r.head()-r.reach() {
			return foreign, s.Start
		}
	}
	return kind, pos
}

// Add counts n in a cell. If the block has no room, or the ring of a busy level would push out a
// bucket that is not zero, Add changes nothing and reports false: see [View.Put] and [View.Fold].
func (l *Ladder) Add(c Counter, s Stretch, n int64) (ch Change, ok bool) {
	if n == 0 || len(c) == 0 {
		return 0, n == 0
	}
	switch s.Width {
	case 1:
		if l.appendMoment(c, s.Start, n) {
			return 1, true
		}
	case l.width[0]:
		if ch, ok := l.addNewest(c, s, n); ok {
			return ch, true
		}
	}
	switch kind, pos := l.classify(c, s); {
	case kind == foreign:
		return l.addForeign(c, s, n)
	case kind < foreign && c.dense(kind):
		return l.addDense(c, kind, pos, n)
	default:
		return l.addSparse(c, kind, pos, n)
	}
}

// addNewest is Add for the newest bucket of the finest level, the usual case of a busy key. It
// reports false for other cells, and for a sparse one whose count would become zero or not fit.
func (l *Ladder) addNewest(c Counter, s Stretch, n int64) (ch Change, ok bool) {
	if c.dense(0) {
		r := l.ring(c, 0)
		if s.Start != r.head()*s.Width {
			return 0, false
		}
		before := r.addNewest(n)
		return newChange(before, before+n), true
	}
	buckets := l.buckets(c)
	last := len(buckets) - 1
	if last < 0 || buckets[last]>>countBits != uint64(s.End())<<kindBits {
		return 0, false
	}
	before := countOf(buckets[last])
	if before+n == 0 || !fits(before+n) {
		return 0, false
	}
	buckets[last] = sparseWord(buckets[last]>>countBits, before+n)
	c.addToSparseSum(n)
	return newChange(before, before+n), true
}

// mark is Mark within the room of a block. It reports false as Add does.
func (l *Ladder) mark(c Counter, s Stretch) bool {
	pos := l.index(0, s.Start)
	switch {
	case l.newestIndex(c, 0) >= pos:
		return true
	case len(c) == 0:
		return false
	case !c.dense(0):
		return !l.crowded(c, 0) && l.insertSparse(c, 0, pos, 0)
	}
	r := l.ring(c, 0)
	if r.wouldLose(pos) {
		return false
	}
	r.advance(pos)
	return true
}

// Marked returns the mark of events ahead of the present, if there is one.
func (l *Ladder) Marked(c Counter) (mark Stretch, ok bool) {
	newest := l.newestIndex(c, 0)
	mark = Stretch{newest * l.width[0], l.width[0]}
	return mark, newest >= 0 && l.Value(c, mark) == 0
}

func (l *Ladder) addDense(c Counter, level int, pos, n int64) (ch Change, ok bool) {
	r := l.ring(c, level)
	if pos > r.head() {
		if r.wouldLose(pos) {
			return 0, false
		}
		r.advance(pos)
	}
	back := r.head() - pos
	before := r.runningTotal(back) - r.runningTotal(back+1)
	r.add(back, n)
	return newChange(before, before+n), true
}

func newChange(before, after int64) Change {
	switch {
	case before == 0 && after != 0:
		return 1
	case before != 0 && after == 0:
		return -1
	}
	return 0
}

func (l *Ladder) addForeign(c Counter, s Stretch, n int64) (ch Change, ok bool) {
	words := l.foreign(c)
	for i := 0; i < len(words); i += foreignWords {
		if words[i] != uint64(s.Start) || words[i+1] != uint64(s.Width) {
			continue
		}
		before := int64(words[i+2])
		if words[i+2] += uint64(n); words[i+2] == 0 {
			copy(words[i:], words[i+foreignWords:])
			c.adjustLens(0, -1)
		}
		return newChange(before, before+n), true
	}
	if len(words) >= mostForeign*foreignWords {
		joinOldest(words, s, n)
		return 0, true
	}
	end := l.cellsEnd(c)
	if end+foreignWords > len(c) {
		return 0, false
	}
	c[end], c[end+1], c[end+2] = uint64(s.Start), uint64(s.Width), uint64(n)
	c.adjustLens(0, 1)
	return 1, true
}

// mostForeign is how many foreign cells a counter may have. It has that many only if other nodes
// count by thousands of buckets of other widths.
const mostForeign = 1 << (lenBits - 1)

// joinOldest makes room for a foreign cell by joining it to the one that begins first, which then
// covers both and, like all others, begins at a multiple of its width.
func joinOldest(words []uint64, s Stretch, n int64) {
	oldest := 0
	for i := 0; i < len(words); i += foreignWords {
		if int64(words[i]) < int64(words[oldest]) {
			oldest = i
		}
	}
	w := words[oldest : oldest+foreignWords]
	start := min(int64(w[0]), s.Start)
	both := enclosingBucket(Stretch{start, max(int64(w[0]+w[1]), s.End()) - start})
	w[0], w[1], w[2] = uint64(both.Start), uint64(both.Width), w[2]+uint64(n)
}

// cellsEnd returns where the cells of a counter end.
func (l *Ladder) cellsEnd(c Counter) int {
	return int(l.start[c.mask()][MaxLevels]) + c.sparseLen() + c.foreignLen()*foreignWords
}

// newestIndex returns the newest bucket of a level, even if it is zero, or -1 if there is none.
func (l *Ladder) newestIndex(c Counter, level int) int64 {
	if len(c) == 0 {
		return -1
	}
	if c.dense(level) {
		return l.ring(c, level).head()
	}
	buckets := l.buckets(c)
	for i := len(buckets) - 1; i >= 0; i-- {
		if kindOf(buckets[i]) == level {
			return l.index(level, endOf(buckets[i])-1)
		}
	}
	return -1
}

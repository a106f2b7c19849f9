package leaparray

// Counter holds the cells of one key in a flat block of words. A nil or empty block is an empty
// counter. Its layout:
//
//	word 0     bits 0-5: mask of the dense levels; bits 6-18: number of sparse cells;
//	           bits 19-31: number of foreign cells; bits 32-63 belong to the Allocator
//	word 1     sum of the sparse cells
//	rings      one for each dense level, finest first
//	sparse     a word for each cell: kind (3 bits), position (42 bits), count (19 bits, signed);
//	           in the order of their ends
//	foreign    three words for each cell: its start, width and count; the rest is free
//
// The kind of a sparse cell is its level, and its position the index of the bucket; or it is a
// moment. Foreign cells have another width, a count that does not fit in 19 bits, or are too old
// for the ring of their level. A level becomes dense when more than half of its buckets are live
// or a count does not fit.
type Counter []uint64

const (
	countBits = 19
	posBits   = 42
	maxSparse = 1<<(countBits-1) - 1
	posMask   = 1<<posBits - 1
	kindShift = countBits + posBits

	head         = 2 // words before the rings
	maskBits     = 6
	lenBits      = 13
	lenMask      = 1<<lenBits - 1
	foreignShift = maskBits + lenBits
	foreignWords = 3
)

// The kinds of cells that are no level.
const (
	foreign = MaxLevels
	moment  = MaxLevels + 1
	kinds   = MaxLevels + 2
)

// Change is by how much an operation changed the number of cells that are not zero.
type Change int

func word(kind int, pos, n int64) uint64 {
	return (uint64(kind)<<posBits|uint64(pos)&posMask)<<countBits | uint64(n)&(1<<countBits-1)
}

func kindOf(w uint64) int { return int(w >> kindShift) }

func posOf(w uint64) int64 { return int64(w >> countBits & posMask) }

func countOf(w uint64) int64 { return int64(w<<(64-countBits)) >> (64 - countBits) }

func fits(n int64) bool { return n >= -maxSparse && n <= maxSparse }

func (c Counter) mask() uint { return uint(c[0] & (1<<maskBits - 1)) }

func (c Counter) sparseLen() int { return int(c[0] >> maskBits & lenMask) }

func (c Counter) foreignLen() int { return int(c[0] >> foreignShift & lenMask) }

func (c Counter) hasForeign() bool { return len(c) > 0 && c.foreignLen() > 0 }

func (c Counter) dense(level int) bool { return c[0]&(1<<level) != 0 }

// lengthen changes the number of sparse and of foreign cells.
func (c Counter) lengthen(sparse, foreign int) {
	c[0] += uint64(int64(sparse)<<maskBits + int64(foreign)<<foreignShift)
}

// sparse returns the words of the sparse cells.
func (l *Ladder) sparse(c Counter) []uint64 {
	at := int(l.start[c.mask()][len(l.levels)])
	return c[at : at+c.sparseLen()]
}

// foreign returns the words of the foreign cells.
func (l *Ladder) foreign(c Counter) []uint64 {
	n := c.foreignLen()
	if n == 0 {
		return nil
	}
	at := int(l.start[c.mask()][len(l.levels)]) + c.sparseLen()
	return c[at : at+n*foreignWords]
}

func (l *Ladder) ring(c Counter, level int) ring {
	at := int(l.start[c.mask()][level])
	return ring(c[at : at+ringHead+l.slots[level]])
}

// stretch returns where a sparse cell lies.
func (l *Ladder) stretch(w uint64) Stretch {
	width := l.width[kindOf(w)]
	return Stretch{posOf(w) * width, width}
}

// level returns the level of buckets of this width, or that of a moment; -1 if there is none.
func (l *Ladder) level(width int64) int {
	if width == 1 {
		return moment
	}
	for level := range l.levels {
		if l.width[level] == width {
			return level
		}
	}
	return -1
}

// kind returns how a stretch is stored in a counter, and its position.
func (l *Ladder) kind(c Counter, s Stretch) (kind int, pos int64) {
	if s.Width == 1 {
		return moment, s.Start
	}
	for level := range l.levels {
		if l.width[level] != s.Width {
			continue
		}
		pos = l.index(level, s.Start)
		if len(c) > 0 && c.dense(level) {
			if r := l.ring(c, level); pos < r.head()-r.reach() {
				break
			}
		}
		return level, pos
	}
	return foreign, s.Start
}

// Add counts n in a cell. If the block has no room, or the ring of a busy level would push out a
// bucket that is not zero, Add changes nothing and reports false: see [Ladder.Put] and [View.Fold].
func (l *Ladder) Add(c Counter, s Stretch, n int64) (ch Change, ok bool) {
	if n == 0 || len(c) == 0 {
		return 0, n == 0
	}
	switch kind, pos := l.kind(c, s); {
	case kind == foreign:
		return l.addForeign(c, s, n)
	case kind < foreign && c.dense(kind):
		return l.addDense(c, kind, pos, n)
	default:
		return l.addSparse(c, kind, pos, n)
	}
}

// mark is Mark in the room that a block has. It reports false as Add does.
func (l *Ladder) mark(c Counter, s Stretch) bool {
	pos := l.index(0, s.Start)
	switch {
	case l.newest(c) >= pos:
		return true
	case len(c) == 0:
		return false
	case !c.dense(0):
		return c.sparseLen() < l.most && !l.crowded(c, 0) && l.insert(c, 0, pos, 0)
	}
	r := l.ring(c, 0)
	if r.lost(pos) {
		return false
	}
	r.advance(pos)
	return true
}

// Marked returns the mark of events ahead of the present, if there is one.
func (l *Ladder) Marked(c Counter) (mark Stretch, ok bool) {
	newest := l.newest(c)
	mark = Stretch{newest * l.width[0], l.width[0]}
	return mark, newest >= 0 && l.Value(c, mark) == 0
}

func (l *Ladder) addDense(c Counter, level int, pos, n int64) (ch Change, ok bool) {
	r := l.ring(c, level)
	if pos == r.head() { // nearly always
		before := r.addNewest(n)
		return change(before, before+n), true
	}
	if pos > r.head() {
		if r.lost(pos) {
			return 0, false
		}
		r.advance(pos)
	}
	back := r.head() - pos
	before := r.total(back) - r.total(back+1)
	r.add(back, n)
	return change(before, before+n), true
}

func change(before, after int64) Change {
	switch {
	case before == 0 && after != 0:
		return 1
	case before != 0 && after == 0:
		return -1
	}
	return 0
}

func (l *Ladder) addSparse(c Counter, kind int, pos, n int64) (ch Change, ok bool) {
	words := l.sparse(c)
	i := l.find(words, kind, pos)
	if i < 0 {
		s := Stretch{pos * l.width[kind], l.width[kind]}
		if c.foreignLen() > 0 && l.Value(c, s) != 0 || kind == moment && !fits(n) {
			return l.addForeign(c, s, n)
		}
		return 1, fits(n) && len(words) < l.most && (kind == moment || !l.crowded(c, kind)) &&
			l.insert(c, kind, pos, n)
	}
	before := countOf(words[i])
	after := before + n
	switch {
	case after == 0:
		l.remove(c, i)
		return -1, true
	case fits(after):
		words[i] = word(kind, pos, after)
		c[1] += uint64(n)
		return change(before, after), true
	case kind != moment || len(c) < l.end(c)+foreignWords-1:
		return 0, false
	}
	l.remove(c, i)
	ch, ok = l.addForeign(c, Moment(pos), after)
	return ch - 1, ok
}

// find returns the position of a sparse cell, or -1.
func (l *Ladder) find(words []uint64, kind int, pos int64) int {
	tag := word(kind, pos, 0) >> countBits
	end := (pos + 1) * l.width[kind]
	for i := len(words) - 1; i >= 0; i-- {
		if words[i]>>countBits == tag {
			return i
		}
		if l.stretch(words[i]).End() < end {
			break
		}
	}
	return -1
}

// insert inserts a sparse cell that is not there yet. It reports false if there is no room.
func (l *Ladder) insert(c Counter, kind int, pos, n int64) bool {
	if l.end(c) >= len(c) {
		return false
	}
	words, strange := l.sparse(c), l.foreign(c)
	copy(c[l.end(c)-len(strange)+1:], strange)
	i, end := len(words), (pos+1)*l.width[kind]
	words = words[:i+1]
	for ; i > 0 && l.stretch(words[i-1]).End() > end; i-- {
		words[i] = words[i-1]
	}
	words[i] = word(kind, pos, n)
	c[1] += uint64(n)
	c.lengthen(1, 0)
	return true
}

// remove removes the sparse cell at position i.
func (l *Ladder) remove(c Counter, i int) {
	words := l.sparse(c)
	c[1] -= uint64(countOf(words[i]))
	at := int(l.start[c.mask()][len(l.levels)]) + i
	copy(c[at:l.end(c)], c[at+1:l.end(c)])
	c.lengthen(-1, 0)
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
			c.lengthen(0, -1)
		}
		return change(before, before+n), true
	}
	if len(words) >= mostForeign*foreignWords {
		joinOldest(words, s, n)
		return 0, true
	}
	end := l.end(c)
	if end+foreignWords > len(c) {
		return 0, false
	}
	c[end], c[end+1], c[end+2] = uint64(s.Start), uint64(s.Width), uint64(n)
	c.lengthen(0, 1)
	return 1, true
}

// mostForeign is how many foreign cells a counter may have. It has that many only if other nodes
// count by thousands of buckets of other widths.
const mostForeign = 1 << (lenBits - 1)

// joinOldest makes room for a foreign cell: it becomes part of the cell that begins first, which
// then covers both.
func joinOldest(words []uint64, s Stretch, n int64) {
	oldest := 0
	for i := 0; i < len(words); i += foreignWords {
		if int64(words[i]) < int64(words[oldest]) {
			oldest = i
		}
	}
	w := words[oldest : oldest+foreignWords]
	start := min(int64(w[0]), s.Start)
	end := max(int64(w[0]+w[1]), s.End())
	w[0], w[1], w[2] = uint64(start), uint64(end-start), w[2]+uint64(n)
}

// end returns where the cells of a counter end.
func (l *Ladder) end(c Counter) int {
	return int(l.start[c.mask()][len(l.levels)]) + c.sparseLen() + c.foreignLen()*foreignWords
}

// leastCrowded is how many sparse buckets any level may have.
const leastCrowded = 4

// crowded reports whether a level has as many sparse buckets as it may have.
func (l *Ladder) crowded(c Counter, level int) bool {
	most := max(leastCrowded, l.count[level]/2)
	if int64(c.sparseLen()) < most {
		return false
	}
	for _, w := range l.sparse(c) {
		if kindOf(w) == level {
			most--
		}
	}
	return most <= 0
}

// newest returns the newest bucket of the finest level, even if it is zero, or -1 if there is none.
func (l *Ladder) newest(c Counter) int64 { return l.newestOf(c, 0) }

// newestOf is newest for any level.
func (l *Ladder) newestOf(c Counter, level int) int64 {
	if len(c) == 0 {
		return -1
	}
	if c.dense(level) {
		return l.ring(c, level).head()
	}
	words := l.sparse(c)
	for i := len(words) - 1; i >= 0; i-- {
		if kindOf(words[i]) == level {
			return posOf(words[i])
		}
	}
	return -1
}

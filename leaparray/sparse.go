package leaparray

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// Sparse cells are words that begin with the end of their cell, so that one comparison decides
// whether a window begins after a cell. Moments are kept apart from buckets because no window cuts
// them: finding a cut bucket takes no look at hundreds of moments.

// tag returns the word of a sparse cell without its count.
func (l *Ladder) tag(kind int, pos int64) uint64 {
	return uint64((pos+1)*l.width[kind])<<kindBits | uint64(kind)
}

func sparseWord(tag uint64, n int64) uint64 { return tag<<countBits | uint64(n)&(1<<countBits-1) }

func kindOf(w uint64) int { return int(w >> countBits & (1<<kindBits - 1)) }

func endOf(w uint64) int64 { return int64(w >> endShift) }

func countOf(w uint64) int64 { return int64(w<<(64-countBits)) >> (64 - countBits) }

func fits(n int64) bool { return n >= -maxSparse && n <= maxSparse }

// bucketLen returns how many of the sparse cells are buckets.
func (c Counter) bucketLen() int { return int(c[1] & bucketMask) }

// sparseSum returns the sum of the sparse cells.
func (c Counter) sparseSum() int64 { return int64(c[1]) >> bucketBits }

// addToSparseSum changes the sum of the sparse cells.
func (c Counter) addToSparseSum(n int64) { c[1] += uint64(n << bucketBits) }

// sparse returns the words of the sparse cells.
func (l *Ladder) sparse(c Counter) []uint64 {
	at := int(l.start[c.mask()][MaxLevels])
	return c[at : at+c.sparseLen()]
}

// buckets returns the words of the sparse buckets.
func (l *Ladder) buckets(c Counter) []uint64 {
	at := int(l.start[c.mask()][MaxLevels])
	return c[at : at+c.bucketLen()]
}

// sparseParts returns the words of the sparse buckets, and of the moments.
func (l *Ladder) sparseParts(c Counter) (buckets, moments []uint64) {
	at := int(l.start[c.mask()][MaxLevels])
	mid := at + c.bucketLen()
	return c[at:mid], c[mid : at+c.sparseLen()]
}

// stretchOf returns where a sparse cell lies.
func (l *Ladder) stretchOf(w uint64) Stretch {
	width := l.width[kindOf(w)]
	return Stretch{endOf(w) - width, width}
}

// findSparse returns the position of the sparse cell with a tag, and whether there is one. If there
// is none, it returns the position where it belongs.
func (l *Ladder) findSparse(c Counter, tag uint64) (i int, found bool) {
	words, first := l.sparse(c), c.bucketLen()
	if tag&(1<<kindBits-1) != moment {
		words, first = words[:first], 0
	}
	end := len(words)
	if end == first || words[end-1]>>countBits < tag {
		return end, false
	}
	if words[end-1]>>countBits == tag {
		return end - 1, true
	}
	for i = first; i < end; {
		if mid := (i + end) / 2; words[mid]>>countBits < tag {
			i = mid + 1
		} else {
			end = mid
		}
	}
	return i, words[i]>>countBits == tag
}

func (l *Ladder) addSparse(c Counter, kind int, pos, n int64) (ch Change, ok bool) {
	tag := l.tag(kind, pos)
	i, found := l.findSparse(c, tag)
	if !found {
		s := Stretch{pos * l.width[kind], l.width[kind]}
		if c.foreignLen() > 0 && l.Value(c, s) != 0 || kind == moment && !fits(n) {
			return l.addForeign(c, s, n)
		}
		return 1, fits(n) && c.sparseLen() < l.most && (kind == moment || !l.crowded(c, kind)) &&
			l.insertWord(c, i, sparseWord(tag, n))
	}
	words := l.sparse(c)
	before := countOf(words[i])
	after := before + n
	switch {
	case after == 0:
		l.removeWord(c, i)
		return -1, true
	case fits(after):
		words[i] = sparseWord(tag, after)
		c.addToSparseSum(n)
		return newChange(before, after), true
	case kind != moment || len(c) < l.cellsEnd(c)+foreignWords-1:
		return 0, false
	}
	l.removeWord(c, i)
	ch, ok = l.addForeign(c, Moment(pos), after)
	return ch - 1, ok
}

// appendMoment counts n in a moment that is later than all others, if that takes only a word at the
// end: nearly always, if a key is not busy.
func (l *Ladder) appendMoment(c Counter, ms, n int64) bool {
	end := int(l.start[c.mask()][MaxLevels]) + c.sparseLen()
	if end >= len(c) || c.foreignLen() > 0 || c.sparseLen() >= l.most || !fits(n) ||
		uint64(ms) >= maxEnd {
		return false
	}
	tag := uint64(ms+1)<<kindBits | moment
	if c.sparseLen() > c.bucketLen() && c[end-1]>>countBits >= tag {
		return false
	}
	c[end] = sparseWord(tag, n)
	c.addToSparseSum(n)
	c.adjustLens(1, 0)
	return true
}

// insertSparse inserts a sparse cell that is not there yet. It reports false if there is no room.
func (l *Ladder) insertSparse(c Counter, kind int, pos, n int64) bool {
	tag := l.tag(kind, pos)
	i, _ := l.findSparse(c, tag)
	return l.insertWord(c, i, sparseWord(tag, n))
}

// insertWord is insertSparse for a word and its position.
func (l *Ladder) insertWord(c Counter, i int, w uint64) bool {
	at, end := int(l.start[c.mask()][MaxLevels])+i, l.cellsEnd(c)
	if end >= len(c) {
		return false
	}
	if at < end {
		copy(c[at+1:end+1], c[at:end])
	}
	c[at] = w
	c.addToSparseSum(countOf(w))
	c.adjustLens(1, 0)
	if kindOf(w) != moment {
		c[1]++
	}
	return true
}

// removeWord removes the sparse cell at a position.
func (l *Ladder) removeWord(c Counter, i int) {
	at, end := int(l.start[c.mask()][MaxLevels])+i, l.cellsEnd(c)
	c.addToSparseSum(-countOf(c[at]))
	if kindOf(c[at]) != moment {
		c[1]--
	}
	copy(c[at:end], c[at+1:end])
	c.adjustLens(-1, 0)
}

// leastCrowded is how many sparse buckets any level may have.
const leastCrowded = 4

// crowded reports whether a level has as many sparse buckets as it may have.
func (l *Ladder) crowded(c Counter, level int) bool {
	most := max(leastCrowded, l.count[level]/2)
	if int64(c.bucketLen()) < most {
		return false
	}
	for _, w := range l.buckets(c) {
		if kindOf(w) == level {
			most--
		}
	}
	return most <= 0
}

// sumSince returns the sum of the sparse cells that end after a moment, given the sum of all. If no
// moment is older, it subtracts the older buckets from that sum.
func sumSince(buckets, moments []uint64, sum, from int64) (n int64) {
	if len(moments) == 0 || endOf(moments[0]) > from {
		for _, w := range buckets {
			if endOf(w) > from {
				break
			}
			sum -= countOf(w)
		}
		return sum
	}
	i := len(moments)
	for ; i > 8 && endOf(moments[i-8]) > from; i -= 8 { // which is faster than one by one
		w := (*[8]uint64)(moments[i-8:])
		if (w[0]|w[1]|w[2]|w[3]|w[4]|w[5]|w[6]|w[7])&(15<<(countBits-4)) != 0 {
			break // their sum may not fit in the bits of a count
		}
		n += countOf(w[0] + w[1] + w[2] + w[3] + w[4] + w[5] + w[6] + w[7])
	}
	for i--; i >= 0 && endOf(moments[i]) > from; i-- {
		n += countOf(moments[i])
	}
	for i := len(buckets) - 1; i >= 0 && endOf(buckets[i]) > from; i-- {
		n += countOf(buckets[i])
	}
	return n
}

// maxMoment is later than all moments.
const maxMoment = int64(math.MaxInt64)

// HasSpareMoments reports whether a counter has so many cells of a millisecond that are older than
// the exact events, and whose bucket is over, that folding them is worth it.
func (v View) HasSpareMoments() bool {
	l := v.Ladder
	if l.exact == 0 {
		return false
	}
	all, spare := 0, false
	for _, c := range [2]Counter{v.A, v.B} {
		if len(c) == 0 {
			continue
		}
		_, moments := l.sparseParts(c)
		all += len(moments)
		if newest := len(moments) - int(l.exact); newest >= slack {
			into := l.BucketAfter(endOf(moments[slack-1]) - 1)
			spare = spare || into.Start < endOf(moments[newest])
		}
	}
	return spare && all > 2*int(l.exact)+slack
}

// countNewer returns how many events are certainly newer than a moment.
func (l *Ladder) countNewer(c Counter, ts int64) (n int64) {
	if len(c) == 0 {
		return 0
	}
	for mask := c.mask(); mask != 0; mask &= mask - 1 {
		level := bits.TrailingZeros(mask)
		if r := l.ring(c, level); r.head()*l.width[level] > ts {
			n += r.sum(l.index(level, ts)+1, r.head())
		}
	}
	for s, held := range l.foreignCells(c) {
		if s.Start > ts {
			n += held
		}
	}
	buckets, moments := l.sparseParts(c)
	for i := len(moments) - 1; i >= 0 && endOf(moments[i])-1 > ts; i-- {
		n += countOf(moments[i])
	}
	for i := len(buckets) - 1; i >= 0 && endOf(buckets[i]) > ts; i-- {
		if l.stretchOf(buckets[i]).Start > ts {
			n += countOf(buckets[i])
		}
	}
	return n
}

// ExactFrom returns a moment at or after which there are at least Ladder.ExactEvents events: these
// keep their millisecond, if they have it. It is 0 if there are fewer.
func (v View) ExactFrom() int64 {
	l := v.Ladder
	if l.exact == 0 {
		return maxMoment
	}
	if from, ok := l.exactFromSparse(v.A, v.B); ok {
		return from
	}
	list := make([]Cell, 0, sweepBuffer)
	for s, n := range v.Cells() {
		list = append(list, Cell{s, n})
	}
	slices.SortFunc(list, func(a, b Cell) int { return cmp.Compare(b.Start, a.Start) })
	sum := int64(0)
	for _, c := range list {
		if sum += c.N; sum >= l.exact {
			return c.Start
		}
	}
	return 0
}

// exactFromSparse is ExactFrom by the sparse cells of two counters. It reports false if they have
// fewer events, and the counters have other cells.
func (l *Ladder) exactFromSparse(a, b Counter) (from int64, ok bool) {
	words, others := make([][]uint64, 0, 4), false
	for _, c := range [2]Counter{a, b} {
		if c.isEmpty() {
			continue
		}
		buckets, moments := l.sparseParts(c)
		if words = append(words, moments); len(buckets) > 0 {
			words = append(words, buckets)
		}
		others = others || c.mask() != 0 || c.foreignLen() > 0
	}
	from = maxMoment
	for sum := int64(0); sum < l.exact; {
		newest, which := uint64(0), 0
		for i, w := range words {
			if last := len(w) - 1; last >= 0 && w[last] > newest {
				newest, which = w[last], i
			}
		}
		if newest == 0 {
			return 0, !others
		}
		words[which] = words[which][:len(words[which])-1]
		sum += countOf(newest)
		from = min(from, l.stretchOf(newest).Start)
	}
	return from, true
}

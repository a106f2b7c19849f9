package leaparray

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// maxMoment is later than all moments.
const maxMoment = int64(math.MaxInt64)

// HasSpareMoments reports whether so many cells of a millisecond are older than the exact events
// that folding them is worth it.
func (v View) HasSpareMoments() bool {
	n := 0
	for _, c := range [2]Counter{v.A, v.B} {
		if len(c) > 0 {
			n += c.sparseLen() - c.bucketLen()
		}
	}
	return n > 2*int(v.Ladder.exact)+slack
}

// KeepsMillisecond reports whether an event of a moment keeps its millisecond.
func (v View) KeepsMillisecond(ts int64) bool {
	return v.keepsMillisecond(ts, v.Ladder.index(0, ts))
}

// keepsMillisecond is KeepsMillisecond, given the bucket of the finest level.
func (v *View) keepsMillisecond(ts, fine int64) bool {
	l, held := v.Ladder, int64(0)
	if l.exact == 0 {
		return false
	}
	if !v.A.isEmpty() {
		held = l.fineCount(v.A, fine)
	}
	if !v.B.isEmpty() {
		held += l.fineCount(v.B, fine)
	}
	if held != 0 {
		return false // the key was busy a moment ago
	}
	n, _, ok := v.sumAfter(ts-l.width[0]+1, ts)
	if !ok {
		return v.upperBound(ts-l.width[0]+1, ts) < l.exact &&
			l.countNewer(v.A, ts)+l.countNewer(v.B, ts) < l.exact
	}
	return n < l.exact
}

// fineCount returns the count of a bucket of the finest level, of a counter that is not empty.
func (l *Ladder) fineCount(c Counter, i int64) int64 {
	switch {
	case c.foreignLen() > 0:
		return l.Value(c, Stretch{i * l.width[0], l.width[0]})
	case c.dense(0):
		r := l.ring(c, 0)
		if i == r.head() {
			return r.runningTotal(0) - r.runningTotal(1)
		}
		return r.sum(i, i)
	}
	end, buckets := (i+1)*l.width[0], l.buckets(c)
	for i := len(buckets) - 1; i >= 0 && endOf(buckets[i]) >= end; i-- {
		if buckets[i]>>countBits == uint64(end)<<kindBits {
			return countOf(buckets[i])
		}
	}
	return 0
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
	words := l.foreign(c)
	for i := 0; i < len(words); i += foreignWords {
		if int64(words[i]) > ts {
			n += int64(words[i+2])
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
	add := func(s Stretch, n int64) bool {
		list = append(list, Cell{s, n})
		return true
	}
	l.EachCell(v.A, add)
	l.EachCell(v.B, add)
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

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

// KeepsMillisecond reports whether an event of a moment keeps its millisecond: unless as many
// events as need theirs are later, or came within the finest width before it.
func (v View) KeepsMillisecond(ts int64) bool {
	l := v.Ladder
	if l.exact == 0 {
		return false
	}
	from := ts - l.width[0] + 1
	n, _, ok := v.sumAfter(from, ts)
	if !ok {
		return v.upperBound(from, ts) < l.exact &&
			l.countNewer(v.A, ts)+l.countNewer(v.B, ts) < l.exact
	}
	return n < l.exact
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

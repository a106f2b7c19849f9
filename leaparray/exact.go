package leaparray

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// maxMoment is later than all moments.
const maxMoment = int64(math.MaxInt64)

// Exactly reports whether an event of a moment keeps its millisecond.
func (v View) Exactly(ts int64) bool {
	l := v.Ladder
	if l.exact == 0 {
		return false
	}
	i := l.index(0, ts)
	fine := Stretch{i * l.width[0], l.width[0]}
	return v.Value(fine) == 0 && // otherwise the key was busy a moment ago
		v.hi(ts-l.width[0]+1, ts) < l.exact &&
		l.newer(v.A, ts, l.exact)+l.newer(v.B, ts, l.exact) < l.exact
}

// newer returns how many events are certainly newer than a moment, or most if there are more.
func (l *Ladder) newer(c Counter, ts, most int64) (n int64) {
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
	words = l.sparse(c)
	for i := len(words) - 1; i >= 0 && n < most; i-- {
		s := l.stretch(words[i])
		if s.End() <= ts {
			break
		}
		if s.Start > ts {
			n += countOf(words[i])
		}
	}
	return n
}

// ExactFrom returns a moment such that at least Ladder.Exact events are at it or later: they keep
// their millisecond, if they have it. It is 0 if there are fewer.
func (v View) ExactFrom() int64 {
	l := v.Ladder
	if l.exact == 0 {
		return maxMoment
	}
	if from, ok := l.newestSparse(v.A, v.B); ok {
		return from
	}
	list := make([]Cell, 0, sweepBuffer)
	add := func(s Stretch, n int64) bool {
		list = append(list, Cell{s, n})
		return true
	}
	l.Each(v.A, add)
	l.Each(v.B, add)
	slices.SortFunc(list, func(a, b Cell) int { return cmp.Compare(b.Start, a.Start) })
	sum := int64(0)
	for _, c := range list {
		if sum += c.N; sum >= l.exact {
			return c.Start
		}
	}
	return 0
}

// newestSparse is ExactFrom by the sparse cells of two counters. It reports false if they have
// fewer events.
func (l *Ladder) newestSparse(a, b Counter) (from int64, ok bool) {
	var words [2][]uint64
	if len(a) > 0 {
		words[0] = l.sparse(a)
	}
	if len(b) > 0 {
		words[1] = l.sparse(b)
	}
	from = maxMoment
	for sum := int64(0); sum < l.exact; {
		newest, which := Stretch{Start: -1}, -1
		for i, w := range words {
			if len(w) == 0 {
				continue
			}
			if s := l.stretch(w[len(w)-1]); s.End() > newest.End() {
				newest, which = s, i
			}
		}
		if which < 0 {
			return 0, false
		}
		last := len(words[which]) - 1
		sum += countOf(words[which][last])
		words[which] = words[which][:last]
		from = min(from, newest.Start)
	}
	return from, true
}

package leaparray

import (
	"cmp"
	"slices"
)

// line is the buckets of one level, in the order of time. Sums of windows that move forward take
// one pass over them.
type line struct {
	dense  [2]ring  // of both counters of a view; nil where the level is sparse
	sparse []bucket // of both counters, oldest first
	steps  int      // buckets that were looked at
}

type bucket struct{ idx, n int64 }

// edge is one end of windows that move forward: a position in the sparse buckets, and their sum
// before it.
type edge struct {
	at  int
	sum int64
}

// line returns the buckets of a level. It appends the sparse ones to buf.
func (v *View) line(level int, buf []bucket) line {
	s := line{sparse: buf}
	for i, c := range [2]Counter{v.A, v.B} {
		switch {
		case len(c) == 0:
		case c.dense(level):
			s.dense[i] = v.Ladder.ring(c, level)
		default:
			for _, e := range v.Ladder.sparse(c) {
				if lv, idx, n := bucketOf(e); lv == level && n != 0 {
					s.sparse = append(s.sparse, bucket{idx, n})
				}
			}
		}
	}
	slices.SortFunc(s.sparse, func(a, b bucket) int { return cmp.Compare(a.idx, b.idx) })
	return s
}

// before adds up the buckets before idx, which is not less than the last one that was asked for at
// this edge.
func (s *line) before(e *edge, idx int64) int64 {
	s.steps++
	for e.at < len(s.sparse) && s.sparse[e.at].idx < idx {
		e.sum += s.sparse[e.at].n
		e.at++
		s.steps++
	}
	sum := e.sum
	for _, r := range s.dense {
		if r != nil {
			sum += r.sum(0, idx-1)
		}
	}
	return sum
}

// most returns the largest sum of a window of this length that ends in the first millisecond of one
// of the buckets from first to last.
func (s *line) most(l *Ladder, level int, window, first, last int64) (most int64) {
	var from, to edge
	for end := first; end <= last; end++ {
		lo := l.Index(level, end*l.width[level]-window+1)
		most = max(most, s.before(&to, end+1)-s.before(&from, lo))
	}
	return most
}

// farAhead is how many buckets after a moment room looks at one by one. MaxAhead is at most 40 of
// them. More would take a script of pure-Redis mode too long, and both modes return the same wait.
const farAhead = 512

// room returns the first moment, from a given one on, such that no window of this length that
// contains it has more than most. Head is the newest bucket. If windows are too full for more than
// farAhead buckets, the moment may be later, because all newer buckets count as one window.
//
// An overfull window that ends in a bucket excludes the moments from its start until enough of its
// oldest buckets have left. From one bucket to the next, neither of these moments goes back.
func (s *line) room(l *Ladder, level int, window, at, head, most int64) int64 {
	var from, to edge
	width, end, oldest := l.width[level], l.Index(level, at), l.Index(level, at-window+1)
	far := min(head, end+farAhead)
	for ; end <= head && end*width-window < at; end++ {
		if end > far {
			end = head
		}
		sum := s.before(&to, end+1)
		for sum-s.before(&from, oldest) > most {
			oldest++
		}
		if until := oldest*width + window - 1; until > end*width || end > far {
			at = max(at, until)
		}
	}
	return at
}

// lineBuffer is how many sparse buckets of a level need no memory from the heap: all of a level of
// the default ladder.
const lineBuffer = 100

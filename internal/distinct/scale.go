package distinct

import "twotier.dev/twotier/leaparray"

// scale is a ladder for distinct values: each level has the values of its whole span.
type scale struct {
	*leaparray.Ladder
	width, count [leaparray.MaxLevels]int64
}

func newScale(l *leaparray.Ladder) *scale {
	s := &scale{Ladder: l}
	for level, of := range l.Levels() {
		s.width[level], s.count[level] = of.Width.Milliseconds(), int64(of.Count)
	}
	return s
}

// index returns the bucket of a level that contains a moment, rounded down.
func (s *scale) index(level int, ms int64) int64 {
	width := s.width[level]
	i := ms / width
	if ms < i*width {
		i--
	}
	return i
}

// oldest returns the oldest bucket kept on a level.
func (s *scale) oldest(level int, now int64) int64 { return s.index(level, now) - s.count[level] }

// bucketRange returns the buckets touched by a window that ends at the given moment, on the finest
// level that covers the window and still keeps all of them.
func (s *scale) bucketRange(window, at, now int64) (level int, lo, hi int64, ok bool) {
	for level := range s.Len() {
		lo := s.index(level, at-window+1)
		if lo >= s.oldest(level, now) && window <= s.count[level]*s.width[level] {
			return level, lo, s.index(level, at), true
		}
	}
	return 0, 0, 0, false
}

// bucket returns a bucket of a level without data.
func (s *scale) bucket(level int, index int64) Bucket {
	width := s.width[level]
	return Bucket{Stretch: leaparray.Stretch{Start: index * width, Width: width}}
}

// bucketContaining returns the bucket of a level that starts no later than a stretch, possibly of
// another ladder, and reports whether it contains all of it.
func (s *scale) bucketContaining(level int, at leaparray.Stretch) (index int64, ok bool) {
	index = s.index(level, at.Start)
	return index, (index+1)*s.width[level] >= at.End()
}

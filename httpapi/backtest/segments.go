package backtest

import (
	"cmp"
	"slices"

	"twotier.dev/twotier/leaparray"
)

// segment is a stretch of time, in unix milliseconds, in which a key had between lo and hi events.
type segment struct {
	from, to int64 // from is included, to is not
	lo, hi   int64
}

// segments returns the history of a key up to now, oldest first, without stretches in which there
// was nothing. Each segment is a bucket of the finest level that still has it. A finer level takes
// over at the edge of a bucket of the coarser one.
func segments(v leaparray.View, now int64) (all []segment) {
	buckets := bucketsOf(v)
	seam, coarse := int64(0), int64(1)
	for level := v.Ladder.Len() - 1; level >= 0; level-- {
		oldest, ok := v.Complete(level)
		if !ok {
			continue
		}
		width := v.Ladder.Width(level)
		seam = max(seam, (oldest*width+coarse-1)/coarse*coarse)
		coarse = width
		if seam > now {
			break
		}
		all = slices.DeleteFunc(all, func(s segment) bool { return s.from >= seam })
		for _, b := range buckets[level] {
			if from, to := b.index*width, (b.index+1)*width; to > seam && from <= now {
				all = append(all, segmentOf(max(from, seam), to, b.n, from >= seam))
			}
		}
	}
	return all
}

// segmentOf returns the segment of a bucket with n events, of which some may be in the segments
// before unless it is whole.
func segmentOf(from, to, n int64, whole bool) segment {
	if s := (segment{from, to, n, n}); whole {
		return s
	}
	return segment{from, to, 0, n}
}

// bucket is one bucket of a level.
type bucket struct{ index, n int64 }

// bucketsOf returns the buckets of each level that hold something, oldest first.
func bucketsOf(v leaparray.View) (levels [leaparray.MaxLevels][]bucket) {
	add := func(level int, index, n int64) bool {
		levels[level] = append(levels[level], bucket{index, n})
		return true
	}
	v.Ladder.Each(v.A, add)
	v.Ladder.Each(v.B, add)
	for level, list := range levels {
		slices.SortFunc(list, func(a, b bucket) int { return cmp.Compare(a.index, b.index) })
		kept := list[:0]
		for _, b := range list {
			if last := len(kept) - 1; last >= 0 && kept[last].index == b.index {
				kept[last].n += b.n
			} else {
				kept = append(kept, b)
			}
		}
		// More may have been taken back from a bucket than it had; that counts as nothing.
		levels[level] = slices.DeleteFunc(kept, func(b bucket) bool { return b.n <= 0 })
	}
	return levels
}

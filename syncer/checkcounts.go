package syncer

import (
	"fmt"
	"math"

	"twotier.dev/twotier/leaparray"
)

// NoCount is reported by a store for a bucket that holds something other than a number.
const NoCount = math.MinInt64

// mostStored is the largest sum that a level's buckets may have in the store, so that pending
// counts can be added to it without overflow. Buckets of up to manyStored never add up to that
// much.
const (
	mostStored = 1 << 62
	manyStored = 1 << 40
)

// CheckCounts returns an ErrNotApplied if the buckets of a key hold something that can't be a sum
// of counts: a value that is not a number, or more than can be added up. Someone else has put it
// there, and the key can't be decided about.
//
// A bucket may be negative: counts that were taken back stay taken back when the counts themselves
// are lost with a node or with Redis's data, and both sides of a split may take back the same
// counts. Each negative bucket is read as zero, by itself. If it offset the counts of other
// buckets, limits could be exceeded that those counts alone have used up.
func CheckCounts(l *leaparray.Ladder, held []Bucket) error {
	var sums [leaparray.MaxIDs]int64
	for i := range held {
		b := &held[i]
		if l.LevelOf(b.Level) < 0 {
			continue
		}
		if b.N == NoCount || b.N > mostStored-sums[b.Level] {
			return fmt.Errorf("%w: bucket %d of level %d does not hold a count", ErrNotApplied,
				b.Index, b.Level)
		}
		sums[b.Level] += max(b.N, 0)
	}
	return nil
}

// countable returns the value nearest to n that a bucket may hold, see CheckCounts.
func countable(l *leaparray.Ladder, synced leaparray.Counter, level int, idx, n int64) int64 {
	if n <= manyStored {
		return max(n, 0)
	}
	others := l.Sum(synced, level, 0, math.MaxInt64) - l.Sum(synced, level, idx, idx)
	return max(0, min(n, mostStored-others))
}

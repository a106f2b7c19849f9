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

// CheckCounts returns an ErrNotApplied if the buckets of a key hold what can't be the sum of what
// was counted: no number, or more than can be added up. Somebody else has put it there, and the key
// can't be judged.
//
// A bucket may hold less than nothing: what was taken back from it stays when what it was taken
// from is lost with a node or with Redis's data, or both sides of a split have taken back the same.
// It is read as zero, each by itself. Compensating for the counts of other buckets would let limits
// be exceeded that those alone have used up.
func CheckCounts(l *leaparray.Ladder, held []Bucket) error {
	var sums [leaparray.MaxLevels]int64
	for i := range held {
		b := &held[i]
		if int(b.Level) >= l.Len() {
			continue
		}
		if b.N == NoCount || b.N > mostStored-sums[b.Level] {
			return fmt.Errorf("%w: bucket %d of level %d holds what is no count", ErrNotApplied,
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

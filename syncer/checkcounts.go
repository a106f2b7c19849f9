package syncer

import (
	"fmt"
	"math"

	"twotier.dev/twotier/leaparray"
)

// NoCount is reported by a store for a bucket that holds something other than a number.
const NoCount = math.MinInt64

// mostStored is the largest sum that a key's buckets may have in the store, so that pending
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
// counts. What it lacks is taken from the buckets that contain it, which it may have folded into;
// apart from that, a negative bucket is read as zero. If it offset the counts of other buckets,
// limits could be exceeded that those counts alone have used up.
func CheckCounts(held []Bucket) error {
	sum := int64(0)
	for i := range held {
		b := &held[i]
		if b.N == NoCount || b.N > mostStored-sum {
			return fmt.Errorf("%w: the bucket of %d ms from %d does not hold a count",
				ErrNotApplied, b.Width, b.Start)
		}
		sum += max(b.N, 0)
	}
	return nil
}

// countable returns the value nearest to n that a bucket may hold which holds something already,
// see CheckCounts.
func countable(l *leaparray.Ladder, synced leaparray.Counter, held, n int64) int64 {
	if n <= manyStored {
		return max(n, 0)
	}
	return max(0, min(n, mostStored-(l.Total(synced)-held)))
}

package syncer

import (
	"fmt"
	"math"

	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/store"
)

// NoCount is reported by a store for a bucket that holds something other than a number.
const NoCount = math.MinInt64

// AddCounts adds counts of a bucket. A sum that is too large is NoCount.
func AddCounts(a, b int64) int64 {
	sum := a + b
	if a == NoCount || b == NoCount || (sum > a) != (b > 0) && b != 0 {
		return NoCount
	}
	return sum
}

// CheckCounts returns an ErrNotApplied if the buckets of a key can't be a sum of counts: a value is
// not a number, or they add up to too much. A foreign writer has put it there, and no decision
// about the key is possible.
//
// A bucket may be negative: a count that was taken back stays taken back when the count itself is
// lost with a node or with Redis's data, and both sides of a split may take back the same counts.
// The deficit is subtracted from the buckets that contain it, because it may have folded into them.
// Apart from that, a negative bucket reads as zero. If it offset the counts of other buckets, an
// operation could exceed limits that those counts alone have used up.
func CheckCounts(held []store.Bucket) error {
	sum := int64(0)
	for i := range held {
		b := &held[i]
		if b.N == NoCount || b.N > keys.MostStored-sum {
			return fmt.Errorf("%w: the bucket of %d ms from %d does not hold a count",
				store.ErrNotApplied, b.Width, b.Start)
		}
		sum += max(b.N, 0)
	}
	return nil
}

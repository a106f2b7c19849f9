package durations

import (
	"math"
	"sync/atomic"
	"time"
)

// Schema is the resolution, as Prometheus defines it: the upper bound of bucket i is 2^(i/2^Schema)
// seconds.
const Schema = 3

// The first and the last bucket: about a microsecond and a bit more than a minute. Durations
// outside this range count in the first or the last bucket.
const least, most = -160, 48

// Histogram counts durations. Its zero value is empty and ready to use. It is safe for concurrent
// use.
type Histogram struct {
	buckets [most - least + 1]atomic.Int64
	sum     atomic.Int64 // nanoseconds
}

// Observe counts a duration. A negative one counts as 0: the sum never falls.
func (h *Histogram) Observe(d time.Duration) {
	h.buckets[bucket(d)-least].Add(1)
	h.sum.Add(int64(max(0, d)))
}

func bucket(d time.Duration) int {
	if d <= 0 {
		return least
	}
	i := math.Ceil(math.Log2(d.Seconds()) * (1 << Schema))
	return int(max(least, min(i, most)))
}

// Snapshot is the content of a histogram.
type Snapshot struct {
	// Count is the number of durations, and Sum their sum.
	Count uint64
	Sum   time.Duration
	// Buckets has the number of durations in each non-empty bucket, by its index, see [Schema].
	Buckets map[int]int64
}

// Snapshot returns the durations counted so far. A duration counted concurrently may be in only one
// of Count and Sum.
func (h *Histogram) Snapshot() Snapshot {
	s := Snapshot{Buckets: map[int]int64{}}
	for i := range h.buckets {
		if n := h.buckets[i].Load(); n > 0 {
			s.Buckets[i+least] = n
			s.Count += uint64(n)
		}
	}
	s.Sum = time.Duration(h.sum.Load())
	return s
}

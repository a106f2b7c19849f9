package durations

import (
	"math"
	"sync/atomic"
	"time"
)

// Schema is the resolution as Prometheus names it: the upper bound of bucket i is 2^(i/2^Schema)
// seconds.
const Schema = 3

// The buckets that there are, from about a microsecond to a bit more than a minute. What is outside
// counts as the first or the last.
const least, most = -160, 48

// Histogram counts durations. Its zero value has none. Its methods may be called at the same time.
type Histogram struct {
	buckets [most - least + 1]atomic.Int64
	sum     atomic.Int64 // nanoseconds
}

// Observe counts a duration. Less than 0 counts as next to nothing.
func (h *Histogram) Observe(d time.Duration) {
	h.buckets[bucket(d)-least].Add(1)
	h.sum.Add(int64(d))
}

// bucket returns the bucket of a duration.
func bucket(d time.Duration) int {
	if d <= 0 {
		return least
	}
	i := math.Ceil(math.Log2(d.Seconds()) * (1 << Schema))
	return int(max(least, min(i, most)))
}

// Snapshot is what a histogram has counted.
type Snapshot struct {
	// Count is the number of durations, and Sum what they come to.
	Count uint64
	Sum   time.Duration
	// Buckets has the number of durations in each bucket that has any, see [Schema].
	Buckets map[int]int64
}

// Snapshot returns what has been counted so far. Sum may be ahead of the rest by what is being
// counted at this moment.
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

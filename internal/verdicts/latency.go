package verdicts

import (
	"sync/atomic"
	"time"
)

// bounds are the upper bounds of the buckets of a latency. They are few and fixed, unlike the
// bounds of a native histogram, because the text format can't show native ones.
var bounds = [...]time.Duration{
	50 * time.Microsecond, 100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond,
	25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond,
	500 * time.Millisecond, time.Second, 2500 * time.Millisecond,
}

// latency is a histogram of decision times.
type latency struct {
	buckets [len(bounds) + 1]atomic.Int64
	sum     atomic.Int64 // nanoseconds
}

// observe counts n decisions with the given duration. A negative duration counts as 0.
func (l *latency) observe(took time.Duration, n int64) {
	at := 0
	for at < len(bounds) && took > bounds[at] {
		at++
	}
	l.buckets[at].Add(n)
	l.sum.Add(n * int64(max(0, took)))
}

// addTo adds the number of decisions in each bucket to total.
func (l *latency) addTo(total []int64) {
	for i := range l.buckets {
		total[i] += l.buckets[i].Load()
	}
}

// Latencies returns a histogram of the decisions at all doors: the upper bounds of the buckets in
// seconds, and the number of decisions in each; the last bucket has no bound.
func (c *Counters) Latencies() (bounds []float64, counts []int64) {
	bounds, counts = boundSeconds(), make([]int64, len(c.latency[0].buckets))
	for d := range c.latency {
		c.latency[d].addTo(counts)
	}
	return bounds, counts
}

// boundSeconds returns the bounds in seconds.
func boundSeconds() (list []float64) {
	for _, bound := range bounds {
		list = append(list, bound.Seconds())
	}
	return list
}

// cumulative returns the number of decisions up to each bound in seconds, their total number, and
// their total time in seconds.
func (l *latency) cumulative() (upTo map[float64]uint64, count uint64, sum float64) {
	upTo = make(map[float64]uint64, len(bounds))
	for i, bound := range bounds {
		count += uint64(l.buckets[i].Load())
		upTo[bound.Seconds()] = count
	}
	count += uint64(l.buckets[len(bounds)].Load())
	return upTo, count, time.Duration(l.sum.Load()).Seconds()
}

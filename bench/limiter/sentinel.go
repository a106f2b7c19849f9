package limiter

import (
	"context"
	"hash/maphash"
	"sync"

	"github.com/alibaba/sentinel-golang/core/base"
	sentinel "github.com/alibaba/sentinel-golang/core/stat/base"
)

// Sentinel is sentinel-golang's leap array in this process: every rule of every key has an array
// with one bucket per sub-window, all allocated at the start. It uses its own clock, and its counts
// end with the process. The array has no operation that compares and counts, so both happen under a
// mutex.
type Sentinel struct {
	seed   maphash.Seed
	shards [1021]struct {
		mu   sync.Mutex
		keys map[string][]*sentinel.BucketLeapArray
	}
}

// NewSentinel returns an empty limiter.
func NewSentinel() *Sentinel {
	s := &Sentinel{seed: maphash.MakeSeed()}
	for i := range s.shards {
		s.shards[i].keys = make(map[string][]*sentinel.BucketLeapArray)
	}
	return s
}

// Name returns the name in tables.
func (s *Sentinel) Name() string { return "sentinel leap array" }

// Decide decides each check under its shard's lock. If a check is refused, it takes back the checks
// that were admitted before it.
func (s *Sentinel) Decide(_ context.Context, calls []Call) (int, error) {
	return oneByOne(calls, func(c Call) (bool, error) {
		for i, check := range c.Checks {
			if s.acquire(check, check.N) {
				continue
			}
			for _, done := range c.Checks[:i] {
				s.acquire(done, -done.N)
			}
			return false, nil
		}
		return true, nil
	})
}

// acquire counts n events if they fit. A negative n always fits.
func (s *Sentinel) acquire(c Check, n int64) bool {
	shard := &s.shards[maphash.Bytes(s.seed, c.Key)%uint64(len(s.shards))]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	arrays := shard.keys[string(c.Key)]
	if arrays == nil {
		for _, l := range c.Limits {
			buckets := (l.Window + Width(l.Window) - 1) / Width(l.Window)
			arrays = append(arrays, sentinel.NewBucketLeapArray(uint32(buckets), uint32(l.Window)))
		}
		shard.keys[string(c.Key)] = arrays
	}
	for i, l := range c.Limits {
		if n > 0 && arrays[i].Count(base.MetricEventPass)+n > l.Max {
			return false
		}
	}
	for _, a := range arrays {
		a.AddCount(base.MetricEventPass, n)
	}
	return true
}

package micro_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/syncer"
)

const liveKeys = 1_000_000

// BenchmarkAddByKey adds to keys drawn evenly from a million live ones, on all cores. The floor is
// a count for each key and nothing else: no windows, no names, no store.
func BenchmarkAddByKey(b *testing.B) {
	b.Run("floor", func(b *testing.B) {
		counts := newSharded()
		for key := range uint64(liveKeys) {
			counts.add(key)
		}
		b.ReportAllocs()
		parallel(b, func(r *rand.Rand) func() {
			return func() { counts.add(r.Uint64N(liveKeys)) }
		})
	})
	b.Run("floor-string-keys", func(b *testing.B) {
		names := keyNames()
		counts := newShardedByName(names)
		b.ReportAllocs()
		parallel(b, func(r *rand.Rand) func() {
			var name []byte
			return func() {
				key := r.Uint64N(liveKeys)
				name = drive.AppendKey(name[:0], key)
				counts.add(key, name)
			}
		})
	})
	// First without any flush, then flushing at the usual interval to a store that costs nothing,
	// then without a store.
	for _, v := range []struct {
		name string
		opt  syncer.Options
	}{
		{"syncer", syncer.Options{Store: &ackStore{}, FlushInterval: time.Hour,
			Now: still()}},
		{"syncer-flushing", syncer.Options{Store: &ackStore{}}},
		{"syncer-alone", syncer.Options{}},
	} {
		b.Run(v.name, func(b *testing.B) { benchmarkSyncer(b, v.opt) })
	}
}

// still returns a clock that stands still, to time an add rather than the first add to a bucket,
// which happens once per key and flush interval.
func still() func() int64 {
	now := time.Now().UnixMilli()
	return func() int64 { return now }
}

func benchmarkSyncer(b *testing.B, opt syncer.Options) {
	names := keyNames()
	c := openCounter(b, opt)
	add := adder(b, c)
	for _, name := range names {
		add(name)
	}
	must.Succeed(b, c.Flush(context.Background()))
	b.ReportAllocs()
	parallel(b, func(r *rand.Rand) func() {
		add := adder(b, c)
		// As in a request, the key's bytes are at hand: fetching them from a list would cost more
		// than the measured add.
		var key []byte
		return func() {
			key = drive.AppendKey(key[:0], r.Uint64N(liveKeys))
			add(key)
		}
	})
}

// parallel runs the functions returned by draw on all cores, each with separate random numbers.
func parallel(b *testing.B, draw func(r *rand.Rand) func()) {
	var seed atomic.Uint64
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		do := draw(rand.New(rand.NewPCG(1, seed.Add(1))))
		for pb.Next() {
			do()
		}
	})
}

func keyNames() [][]byte {
	names := make([][]byte, liveKeys)
	for i := range names {
		names[i] = []byte(drive.Key(uint64(i)))
	}
	return names
}

// adder returns a function that adds one to a key, for one goroutine.
func adder(b *testing.B, c *syncer.Counter) func(key []byte) {
	op := twotier.Op{Kind: twotier.Add, Checks: make([]twotier.Check, 1)}
	var res twotier.Result
	return func(key []byte) {
		op.Checks[0] = twotier.Check{Key: key, N: 1}
		if err := c.Do(context.Background(), &op, &res); err != nil {
			b.Error(err)
		}
	}
}

// sharded is the floor: maps under as many mutexes as twotier has partitions.
type sharded struct {
	shards [twotier.DefaultPartitions]struct {
		mu     sync.Mutex
		counts map[uint64]uint64
	}
}

func newSharded() *sharded {
	s := &sharded{}
	for i := range s.shards {
		s.shards[i].counts = make(map[uint64]uint64)
	}
	return s
}

func (s *sharded) add(key uint64) {
	shard := &s.shards[key%uint64(len(s.shards))]
	shard.mu.Lock()
	shard.counts[key]++
	shard.mu.Unlock()
}

// shardedByName is the floor for keys that are names.
type shardedByName struct {
	shards [twotier.DefaultPartitions]struct {
		mu     sync.Mutex
		counts map[string]*uint64
	}
}

func newShardedByName(names [][]byte) *shardedByName {
	s := &shardedByName{}
	for i := range s.shards {
		s.shards[i].counts = make(map[string]*uint64)
	}
	for i, name := range names {
		s.shards[i%len(s.shards)].counts[string(name)] = new(uint64)
	}
	return s
}

func (s *shardedByName) add(key uint64, name []byte) {
	shard := &s.shards[key%uint64(len(s.shards))]
	shard.mu.Lock()
	*shard.counts[string(name)]++
	shard.mu.Unlock()
}

package syncer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/syncer"
)

const liveKeys = 1_000_000

// idle returns a counter that flushes nothing during the measurement.
func idle(b *testing.B) *syncer.Counter {
	return open(b, syncer.Options{Store: embedded.New(embedded.Options{}), FlushInterval: time.Hour,
		MaxMemory: 4 << 30})
}

// fill counts every key once.
func fill(b *testing.B, c *syncer.Counter) [][]byte {
	b.Helper()
	keys := make([][]byte, liveKeys)
	var res twotier.Result
	op := twotier.Op{Checks: []twotier.Check{{N: 1}}}
	for i := range keys {
		keys[i] = strconv.AppendInt([]byte("user:"), int64(i), 10)
		op.Checks[0].Key = keys[i]
		if err := c.Do(context.Background(), &op, &res); err != nil {
			b.Fatal(err)
		}
	}
	return keys
}

func BenchmarkAddAmongAMillion(b *testing.B) {
	c := idle(b)
	keys := fill(b, c)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		rnd := rand.New(rand.NewPCG(rand.Uint64(), 1))
		op := twotier.Op{Checks: []twotier.Check{{N: 1}}}
		var res twotier.Result
		for pb.Next() {
			op.Checks[0].Key = keys[rnd.IntN(liveKeys)]
			if err := c.Do(context.Background(), &op, &res); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkShardedMapAmongAMillion does the least possible work: one number per key under one of
// 256 locks, with no windows, no keys to compare and nothing to flush.
func BenchmarkShardedMapAmongAMillion(b *testing.B) {
	type shard struct {
		mu sync.Mutex
		m  map[uint64]uint64
		_  [48]byte
	}
	shards := make([]shard, 256)
	for i := range shards {
		shards[i].m = map[uint64]uint64{}
	}
	count := func(k uint64) {
		s := &shards[k%256]
		s.mu.Lock()
		s.m[k]++
		s.mu.Unlock()
	}
	for i := range uint64(liveKeys) {
		count(i)
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		rnd := rand.New(rand.NewPCG(rand.Uint64(), 1))
		for pb.Next() {
			count(uint64(rnd.IntN(liveKeys)))
		}
	})
}

// warmAll reads the keys of these adds, so that none of them is cold.
func warmAll(c *syncer.Counter, ops []twotier.Op, res []twotier.Result) {
	reads := slices.Clone(ops)
	for i := range reads {
		reads[i].Kind, reads[i].Checks = twotier.Count, slices.Clone(reads[i].Checks)
		reads[i].Checks[0].Limits = limits(60_000, 0)
	}
	c.DoAll(context.Background(), reads, res)
}

// BenchmarkAddsAmong adds to, or acquires, random keys out of this many, 1,000 per call and one by
// one. Time stands still and nothing is flushed.
func BenchmarkAddsAmong(b *testing.B) {
	for _, keys := range []int{10_000, 1_000_000, 4_000_000} {
		clk := &clock{now: t0}
		c, err := syncer.New(syncer.Options{Store: embedded.New(embedded.Options{}), Now: clk.Now,
			MaxMemory: 4 << 30, FlushInterval: time.Hour})
		if err != nil {
			b.Fatal(err)
		}
		if err := c.Open(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			done, cancel := context.WithCancel(context.Background())
			cancel()
			_ = c.Close(done) // there is no need to flush
		})
		const batch = 1000
		ops, res, names := make([]twotier.Op, batch), make([]twotier.Result, batch),
			make([][16]byte, batch)
		for i := range ops {
			ops[i].Checks = []twotier.Check{{Key: names[i][:], N: 1}}
		}
		for key := range keys / batch {
			for i := range names {
				copy(names[i][:], fmt.Sprintf("%016x", key*batch+i))
			}
			c.DoAll(context.Background(), ops, res)
			warmAll(c, ops, res)
		}
		rnd := rand.New(rand.NewPCG(1, 1))
		draw := func() {
			for i := range names {
				copy(names[i][8:], fmt.Sprintf("%08x", rnd.IntN(keys)))
			}
		}
		// measure also reports the lower quartile of all calls, which does not depend on whether
		// other processes want the core.
		measure := func(b *testing.B, call func()) {
			var took []float64
			for i := range b.N {
				if i%batch == 0 {
					b.StopTimer()
					draw()
					b.StartTimer()
					start := time.Now()
					call()
					took = append(took, float64(time.Since(start).Nanoseconds())/batch)
				}
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/4], "quartile-ns/op")
		}
		b.Run(fmt.Sprintf("keys=%d/batches", keys), func(b *testing.B) {
			measure(b, func() { c.DoAll(context.Background(), ops, res) })
		})
		b.Run(fmt.Sprintf("keys=%d/acquires", keys), func(b *testing.B) {
			for i := range ops {
				ops[i].Kind, ops[i].Checks[0].Limits = twotier.Acquire,
					limits(60_000, 1<<40, 3_600_000, 1<<40)
			}
			measure(b, func() { c.DoAll(context.Background(), ops, res) })
			for i := range ops {
				ops[i].Kind, ops[i].Checks[0].Limits = twotier.Add, nil
			}
		})
		b.Run(fmt.Sprintf("keys=%d/single", keys), func(b *testing.B) {
			measure(b, func() {
				for i := range ops {
					_ = c.Do(context.Background(), &ops[i], &res[i])
				}
			})
		})
	}
}

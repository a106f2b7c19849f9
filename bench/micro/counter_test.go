package micro_test

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/syncer"
)

// maxKeys raises the number of keys, up to ten million, if there is memory and time for it.
var maxKeys = flag.Int("max-keys", 100_000, "most keys of BenchmarkKeys and BenchmarkPauses")

const hour = int64(3_600_000)

// ackStore is a syncer.Store that acknowledges everything and keeps nothing. It stands in for Redis
// where only the process that counts is measured: in earnest Redis keeps the counts, in a process
// of its own. A counter above it must not need to read back what it wrote.
type ackStore struct {
	mu       sync.Mutex
	versions [syncer.DefaultPartitions]uint64
}

// Exchange acknowledges the rounds: it answers as if it had held nothing before them.
func (s *ackStore) Exchange(_ context.Context, rounds []*syncer.Round) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rounds {
		if r.Seq != 0 {
			s.versions[r.Partition]++
		}
		r.Version = s.versions[r.Partition]
		for i := range r.Keys {
			adds := r.Keys[i].Adds
			for b := range adds {
				adds[b].Stored = adds[b].N
			}
		}
	}
}

// openCounter opens a counter, which is closed when the benchmark is over.
func openCounter(b *testing.B, opt syncer.Options) *syncer.Counter {
	c, err := syncer.New(opt)
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Open(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return c
}

// openLarge opens a counter with room for tens of millions of keys.
func openLarge(b *testing.B, store syncer.Store) *syncer.Counter {
	return openCounter(b, syncer.Options{Store: store, MaxMemory: 16 << 30,
		LoadTimeout: time.Minute})
}

// limits are the rules of an acquire, which have room for everything; others have none.
func limits(kind syncer.Kind) []syncer.Limit {
	if kind != syncer.Acquire {
		return nil
	}
	return []syncer.Limit{{Window: 60_000, Max: 1 << 40}, {Window: hour, Max: 1 << 40}}
}

// countAll carries out one operation for each key, in batches.
func countAll(b *testing.B, c *syncer.Counter, keys int, kind syncer.Kind) {
	const round = 10_000
	ops, res := make([]syncer.Op, 0, round), make([]syncer.Result, round)
	for key := range keys {
		check := syncer.Check{Key: []byte(drive.Key(uint64(key))), N: 1, Limits: limits(kind)}
		ops = append(ops, syncer.Op{Kind: kind, Checks: []syncer.Check{check}})
		if len(ops) < round && key < keys-1 {
			continue
		}
		c.DoAll(context.Background(), ops, res[:len(ops)])
		for i := range ops {
			if err := res[i].Err; err != nil {
				b.Fatalf("key %s: %v", ops[i].Checks[0].Key, err)
			}
		}
		ops = ops[:0]
	}
}

// fill counts every key once and flushes everything to the store.
func fill(b *testing.B, c *syncer.Counter, keys int, kind syncer.Kind) {
	countAll(b, c, keys, kind)
	if err := c.Flush(context.Background()); err != nil {
		b.Fatal(err)
	}
}

// named returns the name of a sub-benchmark with a number of keys.
func named(what string, keys int) string { return fmt.Sprintf("%s/keys=%d", what, keys) }

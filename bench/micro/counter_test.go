package micro_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/limiter"
	"twotier.dev/twotier/bench/rival"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/syncer"
)

// The sizes, which the commands raise if there is memory and time for it.
var (
	maxKeys  = flag.Int("max-keys", 100_000, "most keys of BenchmarkKeys and BenchmarkPauses")
	duration = flag.Duration("duration", 200*time.Millisecond,
		"length of an operation of the benchmarks that load a server")
	programDir = flag.String("programs", "",
		"directory in which the servers' programs stay; none by default")
	rate = flag.Float64("rate", 5000, "decisions or adds per second of an open loop")
)

// programs builds the servers.
func programs(b *testing.B) rival.Env {
	env, err := rival.Build(b.Context(), cmp.Or(*programDir, b.TempDir()))
	must.Succeed(b, err)
	return env
}

// start starts a rival, which is closed when the benchmark is over.
func start(b *testing.B, rv rival.Rival, env rival.Env) *rival.Stand {
	s, err := rv.Start(b.Context(), env)
	if errors.Is(err, limiter.ErrNotAvailable) {
		b.Skip(err)
	}
	must.Succeed(b, err)
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

// generate drives a stand for b.N durations.
func generate(b *testing.B, s *rival.Stand, o drive.Options) *rival.Run {
	o.Duration = time.Duration(b.N) * *duration
	r, err := s.Drive(b.Context(), o)
	must.Succeed(b, err)
	return r
}

// reportShare reports the generator's share of the processor time.
func reportShare(b *testing.B, u rival.Usage) { b.ReportMetric(u.Share(), "generator-share") }

const hour = int64(3_600_000)

// ackStore is a syncer.Store that acknowledges everything and keeps nothing. It stands in for Redis
// in measurements of the counting process alone: in production Redis keeps the counts, in another
// process. A counter above it must not need to read its counts back.
type ackStore struct {
	mu       sync.Mutex
	versions [twotier.DefaultPartitions]uint64
}

// Exchange acknowledges the rounds as if it had held nothing before them.
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
	must.Succeed(b, err)
	must.Succeed(b, c.Open(context.Background()))
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

// limits returns the rules of an acquire, which have room for everything; other kinds have none.
func limits(kind twotier.Kind) []twotier.Limit {
	if kind != twotier.Acquire {
		return nil
	}
	return []twotier.Limit{{Window: 60_000, Max: 1 << 40}, {Window: hour, Max: 1 << 40}}
}

// countAll executes one operation for each key, in batches.
func countAll(b *testing.B, c *syncer.Counter, keys int, kind twotier.Kind) {
	const round = 10_000
	ops, res := make([]twotier.Op, 0, round), make([]twotier.Result, round)
	for key := range keys {
		check := twotier.Check{Key: []byte(drive.Key(uint64(key))), N: 1, Limits: limits(kind)}
		ops = append(ops, twotier.Op{Kind: kind, Checks: []twotier.Check{check}})
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
func fill(b *testing.B, c *syncer.Counter, keys int, kind twotier.Kind) {
	countAll(b, c, keys, kind)
	must.Succeed(b, c.Flush(context.Background()))
}

// named returns the name of a sub-benchmark with a number of keys.
func named(what string, keys int) string { return fmt.Sprintf("%s/keys=%d", what, keys) }

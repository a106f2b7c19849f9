package micro_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/metrics"
	"sync"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/rival"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/syncer"
)

// BenchmarkKeys measures the cost of an operation with that many live keys, drawn evenly, on all
// cores. Floor is drawing and naming a key, which the others include. Adds use a store that keeps
// nothing, acquires (two rules) one that returns its counts: a key that was only added to is read
// from the store when a decision first needs its past. Server is a server in memory, which receives
// adds in batches of 1,000.
func BenchmarkKeys(b *testing.B) {
	env := programs(b)
	for keys := 10_000; keys <= *maxKeys; keys *= 10 {
		b.Run(named("floor", keys), func(b *testing.B) {
			operate(b, keys, twotier.Add, func(context.Context, *twotier.Op,
				*twotier.Result) error {
				return nil
			})
		})
		b.Run(named("add", keys), func(b *testing.B) { benchmarkAdds(b, keys) })
		b.Run(named("acquire", keys), func(b *testing.B) {
			c := openLarge(b, nil)
			fill(b, c, keys, twotier.Acquire)
			b.Run("run", func(b *testing.B) { operate(b, keys, twotier.Acquire, c.Do) })
		})
		b.Run(named("server", keys), func(b *testing.B) {
			s := start(b, rival.Twotier("twotier", 1, rival.Memory, "--max-memory", "12GiB"), env)
			b.Run("run", func(b *testing.B) { benchmarkBatches(b, s, keys) })
		})
	}
}

// benchmarkAdds also reports the memory of a key: the growth of the process, and the counter's own
// accounting.
func benchmarkAdds(b *testing.B, keys int) {
	c, resident := largeCounter(b, keys)
	counted := float64(c.Stats().MemoryBytes)
	b.Run("run", func(b *testing.B) {
		operate(b, keys, twotier.Add, c.Do)
		b.ReportMetric(resident/float64(keys), "resident-B/key")
		b.ReportMetric(counted/float64(keys), "counted-B/key")
	})
}

// largeCounter opens a counter, adds to that many keys, and also returns the growth of the process
// in bytes.
func largeCounter(b *testing.B, keys int) (*syncer.Counter, float64) {
	empty, err1 := rival.Resident()
	c := openLarge(b, &ackStore{})
	fill(b, c, keys, twotier.Add)
	full, err2 := rival.Resident()
	must.Succeed(b, errors.Join(err1, err2))
	return c, float64(full - empty)
}

// operate executes operations on random keys, and reports the time of one on one core.
func operate(b *testing.B, keys int, kind twotier.Kind,
	do func(context.Context, *twotier.Op, *twotier.Result) error) {
	parallel(b, func(r *rand.Rand) func() {
		op := twotier.Op{Kind: kind, Checks: []twotier.Check{{N: 1, Limits: limits(kind)}}}
		var res twotier.Result
		return func() {
			name := &op.Checks[0].Key
			*name = drive.AppendKey((*name)[:0], r.Uint64N(uint64(keys)))
			if err := do(context.Background(), &op, &res); err != nil {
				b.Error(err)
			}
		}
	})
	cores := float64(runtime.GOMAXPROCS(0))
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())*cores/float64(b.N), "core-ns/op")
}

// BenchmarkPauses collects garbage in a process with many keys while another goroutine keeps
// counting. One operation is one collection, most of which runs concurrently with the program.
func BenchmarkPauses(b *testing.B) {
	c, resident := largeCounter(b, *maxKeys)
	b.Run(named("gc", *maxKeys), func(b *testing.B) {
		before := pauseHistogram()
		added := 0
		adding, stop := context.WithCancel(b.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			add := adder(b, c)
			for key := 0; adding.Err() == nil; key = (key + 7919) % *maxKeys {
				add([]byte(drive.Key(uint64(key))))
				added++
			}
		})
		b.ResetTimer()
		for range b.N {
			runtime.GC()
		}
		b.StopTimer()
		stop()
		wg.Wait()
		b.ReportMetric(float64(added)/b.Elapsed().Seconds(), "adds/s")
		b.ReportMetric(resident, "resident-B")
		reportPauses(b, before, pauseHistogram())
	})
}

func pauseHistogram() *metrics.Float64Histogram {
	s := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(s)
	return s[0].Value.Float64Histogram()
}

// reportPauses reports upper bounds of the pauses between two histograms: edges of the runtime's.
func reportPauses(b *testing.B, before, after *metrics.Float64Histogram) {
	counts := make([]uint64, len(after.Counts))
	stops := uint64(0)
	for i := range counts {
		counts[i] = after.Counts[i] - before.Counts[i]
		stops += counts[i]
	}
	b.ReportMetric(float64(stops), "pauses")
	for unit, q := range map[string]float64{"p50-us": 0.5, "p99-us": 0.99, "max-us": 1} {
		need, seen := uint64(math.Ceil(q*float64(stops))), uint64(0)
		for i, n := range counts {
			if seen += n; seen >= need {
				b.ReportMetric(after.Buckets[i+1]*1e6, unit)
				break
			}
		}
	}
}

// BenchmarkCold measures the extra cost of reading a key back from Redis compared with one in
// memory: one counter counts b.N keys, and another one, whose memory is empty at first, reads all
// of them, twice. Times are of this process and of Redis, bytes to and from Redis.
func BenchmarkCold(b *testing.B) {
	s, err := rival.Redis()
	must.Succeed(b, err)
	b.Cleanup(func() { _ = s.Close() })
	store, err := s.OpenStore(b.Context())
	must.Succeed(b, err)
	fill(b, openLarge(b, store), b.N, twotier.Add)
	cold := openLarge(b, store)
	var at [3]rival.Usage
	for i := range at {
		if i > 0 {
			countAll(b, cold, b.N, twotier.Count)
		}
		if at[i], err = s.Usage(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	first, again := at[1].Since(at[0]), at[2].Since(at[1])
	bytes := func(u rival.Usage) int64 { return u.Redis.BytesIn + u.Redis.BytesOut }
	b.ReportMetric(float64(b.N), "keys")
	per := func(v float64, unit string) { b.ReportMetric(v/float64(b.N), unit) }
	per((first.Driver-again.Driver)*1e6, "load-us/key")
	per((first.Redis.CPU-again.Redis.CPU)*1e6, "redis-us/key")
	per(float64(bytes(first)-bytes(again)), "redis-B/key")
}

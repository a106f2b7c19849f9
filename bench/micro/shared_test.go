package micro_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/bench/load"
	"twotier.dev/twotier/bench/rival"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// pair is two counters over one Redis, the second of which counts in place of the first, and a
// reader of that Redis.
type pair struct {
	b        *testing.B
	counters [2]*syncer.Counter
	direct   *redisstore.Direct
	interval time.Duration
}

func startPair(b *testing.B, interval time.Duration) *pair {
	s, err := rival.Redis()
	must.Succeed(b, err)
	b.Cleanup(func() { _ = s.Close() })
	p := &pair{b: b, interval: interval}
	for i := range p.counters {
		store, err := s.OpenStore(b.Context())
		must.Succeed(b, err)
		p.counters[i] = openCounter(b, syncer.Options{Store: store, FlushInterval: interval,
			NotOwner: i > 0})
	}
	if p.direct, err = s.OpenDirect(b.Context()); err != nil {
		b.Fatal(err)
	}
	return p
}

// timed adds to a key with the first counter and returns the time until seen reads the new count.
func (p *pair) timed(seen doer, key string, n int64) time.Duration {
	before, _ := do(p.b, seen, twotier.Count, key, 1, 0)
	start := time.Now()
	do(p.b, p.counters[0], twotier.Add, key, n, 0)
	for time.Since(start) < time.Minute {
		if now, _ := do(p.b, seen, twotier.Count, key, 1, 0); now >= before+n {
			return time.Since(start)
		}
		time.Sleep(500 * time.Microsecond)
	}
	p.b.Fatalf("%s: not seen after a minute", key)
	return 0
}

// BenchmarkShared measures the trade-off of the flush interval: the time until an add is in Redis,
// the time until another counter that stands in for the owner sees it (one operation is one add of
// each), and how much both together admit beyond a limit of the key.
func BenchmarkShared(b *testing.B) {
	for _, interval := range intervals() {
		b.Run(fmt.Sprintf("interval=%v", interval), func(b *testing.B) {
			p := startPair(b, interval)
			p.staleness()
			b.ReportMetric(float64(p.overshoot()), "overshoot")
		})
	}
}

// staleness times adds at random moments of the flush interval, while the other counter counts the
// same key all the time.
func (p *pair) staleness() {
	const key = "stale"
	busy, stop := context.WithCancel(p.b.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for load.Sleep(busy, time.Millisecond) == nil {
			do(p.b, p.counters[1], twotier.Add, key, 1, 0)
		}
	})
	defer wg.Wait()
	defer stop()
	var inRedis, elsewhere []time.Duration
	for range p.b.N {
		time.Sleep(time.Duration(rand.Float64() * float64(p.interval)))
		inRedis = append(inRedis, p.timed(p.direct, fmt.Sprint(key, rand.Uint64()), 1))
		// More than the other counter itself counts meanwhile.
		elsewhere = append(elsewhere, p.timed(p.counters[1], key, 1_000_000))
	}
	p.report("redis", inRedis)
	p.report("other", elsewhere)
}

func (p *pair) report(what string, of []time.Duration) {
	slices.Sort(of)
	for unit, q := range map[string]float64{"p50": 0.5, "p90": 0.9, "max": 1} {
		at := of[int(q*float64(len(of)-1))]
		p.b.ReportMetric(float64(at)/float64(time.Millisecond), what+"-"+unit+"-ms")
	}
}

// overshoot has both counters admit events of one key, each at a fixed rate, until its limit is
// reached and both know: twice as long as the limit lasts, and a few intervals more.
func (p *pair) overshoot() int64 {
	const (
		key       = "overshoot"
		limit     = 2000
		perSecond = 2000
	)
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for _, c := range p.counters {
		try := load.Worker{
			Next: func() (time.Duration, bool) { return 0, true },
			Do: func() error {
				if _, ok := do(p.b, c, twotier.Acquire, key, 1, limit); ok {
					admitted.Add(1)
				}
				return nil
			},
		}
		loop := load.Loop{Rate: perSecond,
			Duration: time.Second*2*limit/perSecond + 4*p.interval}
		wg.Go(func() { loop.Run(p.b.Context(), []load.Worker{try}) })
	}
	wg.Wait()
	return admitted.Load() - limit
}

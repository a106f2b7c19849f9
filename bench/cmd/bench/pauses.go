package main

import (
	"context"
	"math"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"

	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/rival"
	"twotier.dev/twotier/syncer"
)

// Pauses is what garbage collection does to a process with many keys.
type Pauses struct {
	Keys int `json:"keys"`
	// Bytes are resident after the keys were counted, BytesPerKey what this is for each.
	Bytes       int64   `json:"resident_bytes"`
	BytesPerKey float64 `json:"resident_bytes_per_key"`
	// Cycles are the collections that were forced under load, Stops the pauses that the runtime
	// counted meanwhile.
	Cycles int    `json:"gc_cycles"`
	Stops  uint64 `json:"pauses"`
	// P50, P99 and Max are upper bounds of the pauses in microseconds: edges of the runtime's
	// histogram.
	P50 float64 `json:"p50_us"`
	P99 float64 `json:"p99_us"`
	Max float64 `json:"max_us"`
	// CycleMS is how long a collection took from begin to end on average, most of it beside the
	// program.
	CycleMS float64 `json:"cycle_ms"`
	// Adds were counted per second while the collections ran.
	Adds float64 `json:"adds_per_second"`
}

// pauses fills a counter in this process and collects garbage while adds go on.
func pauses(ctx context.Context, keys, cycles int) (p Pauses, err error) {
	p = Pauses{Keys: keys, Cycles: cycles}
	empty, err := rival.Resident()
	if err != nil {
		return p, err
	}
	return p, withCounter(ctx, &rival.AckStore{}, func(c *syncer.Counter) error {
		if err := countAll(ctx, c, keys, syncer.Add); err != nil {
			return err
		}
		if err := c.Flush(ctx); err != nil {
			return err
		}
		full, err := rival.Resident()
		p.Bytes = full - empty
		p.BytesPerKey = float64(p.Bytes) / float64(keys)
		p.collect(ctx, c)
		return err
	})
}

// collect forces collections while another goroutine goes on counting.
func (p *Pauses) collect(ctx context.Context, c *syncer.Counter) {
	adding, stop := context.WithCancel(ctx)
	added := 0
	before := pauseHistogram()
	var wg sync.WaitGroup
	wg.Go(func() {
		for key := 0; adding.Err() == nil; key = (key + 7919) % p.Keys {
			if add(adding, c, drive.Key(uint64(key)), 1) == nil {
				added++
			}
		}
	})
	start := time.Now()
	for range p.Cycles {
		runtime.GC()
	}
	took := time.Since(start)
	stop()
	wg.Wait()
	p.CycleMS = float64(took.Milliseconds()) / float64(p.Cycles)
	p.Adds = float64(added) / took.Seconds()
	p.quantiles(before, pauseHistogram())
}

func pauseHistogram() *metrics.Float64Histogram {
	s := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(s)
	return s[0].Value.Float64Histogram()
}

// quantiles reads the pauses between two histograms.
func (p *Pauses) quantiles(before, after *metrics.Float64Histogram) {
	counts := make([]uint64, len(after.Counts))
	for i := range counts {
		counts[i] = after.Counts[i] - before.Counts[i]
		p.Stops += counts[i]
	}
	at := func(q float64) float64 {
		need, seen := uint64(math.Ceil(q*float64(p.Stops))), uint64(0)
		for i, n := range counts {
			if seen += n; seen >= need {
				return after.Buckets[i+1] * 1e6
			}
		}
		return 0
	}
	p.P50, p.P99, p.Max = at(0.5), at(0.99), at(1)
}

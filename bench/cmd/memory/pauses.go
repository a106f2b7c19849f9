package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"twotier/bench/ack"
	"twotier/bench/load"
	"twotier/bench/measure"
	"twotier/syncer"
)

// Pauses is what garbage collection does to a process with many keys.
type Pauses struct {
	Keys int `json:"keys"`
	// Bytes are resident after the keys were counted, BytesPerKey what this is for each.
	Bytes       int64   `json:"resident_bytes"`
	BytesPerKey float64 `json:"resident_bytes_per_key"`
	// Cycles are the collections that were forced under load, Stops the pauses that the runtime counted meanwhile.
	Cycles int    `json:"gc_cycles"`
	Stops  uint64 `json:"pauses"`
	// P50, P99 and Max are upper bounds of the pauses in microseconds: edges of the runtime's histogram.
	P50 float64 `json:"p50_us"`
	P99 float64 `json:"p99_us"`
	Max float64 `json:"max_us"`
	// CycleMS is how long a collection took from begin to end on average, most of it beside the program.
	CycleMS float64 `json:"cycle_ms"`
	// Adds were counted per second while the collections ran.
	Adds float64 `json:"adds_per_second"`
}

// pauses fills a counter in this process and collects garbage while adds go on.
func pauses(ctx context.Context, keys, cycles int) (p Pauses, err error) {
	c, err := syncer.New(syncer.Options{Store: ack.New(), MaxMemory: 16 << 30})
	if err != nil {
		return p, err
	}
	if err := c.Open(ctx); err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	empty, err := measure.Resident()
	if err != nil {
		return p, err
	}
	if err := addAll(ctx, c, keys); err != nil {
		return p, err
	}
	if err := c.Flush(ctx); err != nil {
		return p, err
	}
	full, err := measure.Resident()
	if err != nil {
		return p, err
	}
	p = Pauses{Keys: keys, Cycles: cycles, Bytes: full - empty}
	p.BytesPerKey = float64(p.Bytes) / float64(keys)
	before := pauseHistogram()
	adding, stop := context.WithCancel(ctx)
	var added atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() { runAdds(adding, c, keys, &added) })
	start := time.Now()
	for range cycles {
		runtime.GC()
	}
	took := time.Since(start)
	stop()
	wg.Wait()
	p.CycleMS = float64(took.Milliseconds()) / float64(cycles)
	p.Adds = float64(added.Load()) / took.Seconds()
	p.quantiles(before, pauseHistogram())
	return p, nil
}

// addAll counts one event for each key.
func addAll(ctx context.Context, c *syncer.Counter, keys int) error {
	var res syncer.Result
	op := syncer.Op{Kind: syncer.Add, Checks: make([]syncer.Check, 1)}
	for key := range keys {
		op.Checks[0] = syncer.Check{Key: []byte(load.Key(uint64(key))), N: 1}
		if err := c.Do(ctx, &op, &res); err != nil {
			return fmt.Errorf("key %d: %w", key, err)
		}
	}
	return ctx.Err()
}

// runAdds keeps on counting, key after key, until ctx is done.
func runAdds(ctx context.Context, c *syncer.Counter, keys int, added *atomic.Int64) {
	var res syncer.Result
	op := syncer.Op{Kind: syncer.Add, Checks: make([]syncer.Check, 1)}
	for key := 0; ctx.Err() == nil; key = (key + 7919) % keys {
		op.Checks[0] = syncer.Check{Key: []byte(load.Key(uint64(key))), N: 1}
		if c.Do(ctx, &op, &res) == nil {
			added.Add(1)
		}
	}
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

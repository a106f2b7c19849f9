package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strconv"
	"time"

	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/rival"
	"twotier.dev/twotier/internal/load"
)

// Interval measures what the flush interval trades: the work that is left to Redis, how old Redis's
// counts and those of another counter are, and how far two counters that share a key can overshoot
// its limit. It also sends a steady stream of distinct keys, the worst case for a counter that
// flushes in batches: what Redis has not acknowledged must stay bounded.
type Interval struct {
	Intervals []time.Duration `help:"Flush intervals." enum:"10ms,50ms,200ms,1s" default:"10ms,50ms,200ms,1s"`
	Rate      float64         `help:"Decisions, and adds, per second." default:"50000"`
	Duration  time.Duration   `help:"Of the load at each interval." default:"5s"`
	Steady    time.Duration   `help:"Length of the stream of distinct keys." default:"20s"`
	Samples   int             `help:"Adds that are timed at each interval." default:"40"`
}

// IntervalResult is the result of Interval.
type IntervalResult struct {
	Points []IntervalPoint `json:"points"`
	Steady Steady          `json:"steady"`
}

// IntervalPoint is one flush interval.
type IntervalPoint struct {
	MS float64 `json:"interval_ms"`
	// Load is decisions on a Zipf workload at a fixed rate in batches, Usage what it took until
	// Redis had everything.
	Load  drive.Result `json:"load"`
	Usage rival.Usage  `json:"usage"`
	// Redis and Other are how long it took until an add was seen in Redis and by another counter
	// that shares the key, in milliseconds.
	Redis Staleness `json:"redis_staleness_ms"`
	Other Staleness `json:"other_staleness_ms"`
	// Overshoot is how much two counters that share a key admitted above its limit.
	Overshoot int64 `json:"overshoot"`
}

// Staleness is a distribution in milliseconds.
type Staleness struct {
	Median float64 `json:"median"`
	P90    float64 `json:"p90"`
	Max    float64 `json:"max"`
}

func staleness(of map[string]float64, what string) Staleness {
	return Staleness{of[what+"-p50-ms"], of[what+"-p90-ms"], of[what+"-max-ms"]}
}

// Of is the point as a run.
func (p IntervalPoint) Of() *Run { return &Run{Result: p.Load, Usage: p.Usage} }

// Run measures each interval and the stream.
func (o *Interval) Run(ctx context.Context, b *bench) error {
	env, err := b.programs(ctx)
	if err != nil {
		return err
	}
	var r IntervalResult
	for _, interval := range o.Intervals {
		p, err := o.point(ctx, env, interval)
		if err != nil {
			return fmt.Errorf("flush interval %v: %w", interval, err)
		}
		log.Printf("flush interval %v: %.3f commands for each decision; in Redis after %.1f ms, "+
			"seen elsewhere after %.1f ms; overshoot %d",
			interval, p.Of().Commands(), p.Redis.Median, p.Other.Median, p.Overshoot)
		r.Points = append(r.Points, *p)
	}
	if r.Steady, err = o.steady(ctx, env); err != nil {
		return err
	}
	if err := save(b, "interval", o, r); err != nil {
		return err
	}
	if !r.Steady.Bounded {
		return fmt.Errorf("%d buckets were pending, more than the bound of %d", r.Steady.MaxPending,
			r.Steady.Bound)
	}
	return nil
}

// point drives a server, and then has two counters share a key.
func (o *Interval) point(ctx context.Context, env rival.Env,
	interval time.Duration) (*IntervalPoint, error) {
	env.Flush = interval
	run, err := o.load(ctx, env)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("interval=%v", interval)
	m, err := measureMicro(ctx, "^BenchmarkShared$/^"+name+"$", strconv.Itoa(o.Samples)+"x")
	of := m.one("Shared/" + name)
	return &IntervalPoint{
		MS: float64(interval) / float64(time.Millisecond), Load: run.Result, Usage: run.Usage,
		Redis: staleness(of, "redis"), Other: staleness(of, "other"),
		Overshoot: int64(of["overshoot"]),
	}, err
}

// load sends decisions to a server at a fixed rate.
func (o *Interval) load(ctx context.Context, env rival.Env) (r *Run, err error) {
	s, err := rival.Twotier("twotier", 1, rival.TwoTier).Start(ctx, env)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return measure(ctx, s, drive.Options{Workload: "zipf", Batch: 100, Workers: 8, Rate: o.Rate,
		Duration: o.Duration})
}

// Steady is the result of the stream of distinct keys.
type Steady struct {
	Load  load.Result `json:"load"`
	Usage rival.Usage `json:"usage"`
	// Pending is twotier_pending_buckets, once a second.
	Pending     []int64 `json:"pending_buckets"`
	MeanPending int64   `json:"mean_pending_buckets"`
	MaxPending  int64   `json:"max_pending_buckets"`
	// Bound is the number of buckets in five seconds of the stream. Bounded says that Pending
	// stayed below it.
	Bound   int64 `json:"bound"`
	Bounded bool  `json:"bounded"`
	// Drained is the time in seconds from the last add until nothing was pending.
	Drained float64 `json:"drained_seconds"`
}

// bucketsPerEvent is the number of levels of the default ladder.
const bucketsPerEvent = 3

// steady sends a stream of adds, each to a key of its own, through twotier into a Redis.
func (o *Interval) steady(ctx context.Context, env rival.Env) (d Steady, err error) {
	s, err := rival.Twotier("twotier", 1, rival.TwoTier).Start(ctx, env)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	before, err1 := s.Usage(ctx)
	d.Load, err = load.Run(ctx, load.Options{
		URL: "http://" + s.Servers[0].Addr, Op: "batch", Batch: 500, Dist: "distinct",
		Connections: 8, Rate: o.Rate, Duration: o.Steady,
		Progress: func(load.Progress) {
			if v, err := s.Servers[0].Metric(ctx, "twotier_pending_buckets"); err == nil {
				d.Pending = append(d.Pending, int64(v))
			}
		},
	})
	if err := errors.Join(err, err1); err != nil || len(d.Load.Errors) > 0 {
		return d, fmt.Errorf("steady: %w; failed: %v", err, d.Load.Errors)
	}
	last := time.Now()
	if err := s.Drain(ctx); err != nil {
		return d, err
	}
	d.Drained = time.Since(last).Seconds()
	d.bound(5 * o.Rate * bucketsPerEvent)
	after, err1 := s.Usage(ctx)
	keys, err2 := s.RDB.DBSize(ctx).Result()
	if keys < d.Load.Operations {
		err = fmt.Errorf("%d adds to distinct keys, but Redis has %d", d.Load.Operations, keys)
	}
	d.Usage = after.Since(before)
	return d, errors.Join(err, err1, err2)
}

// bound computes the mean, the maximum and whether Pending stayed bounded.
func (d *Steady) bound(most float64) {
	for _, n := range d.Pending {
		d.MaxPending = max(d.MaxPending, n)
		d.MeanPending += n / int64(len(d.Pending))
	}
	d.Bound = int64(most)
	d.Bounded = d.MaxPending <= d.Bound
}

// Per returns a figure of the steady stream per add.
func (d Steady) Per(v float64) float64 { return v / float64(max(d.Load.Operations, 1)) }

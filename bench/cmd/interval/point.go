package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"twotier/bench/drive"
	"twotier/bench/measure"
	"twotier/bench/rival"
)

// Point is one flush interval.
type Point struct {
	IntervalMS float64 `json:"interval_ms"`
	// Load is decisions on a Zipf workload at a fixed rate in batches, Usage what it took until Redis had everything.
	Load  drive.Result  `json:"load"`
	Usage measure.Usage `json:"usage"`
	// Redis and Other are how long it took until an add was seen in Redis and by another counter that shares the key, in
	// milliseconds.
	Redis Staleness `json:"redis_staleness_ms"`
	Other Staleness `json:"other_staleness_ms"`
	// Overshoot is what two counters that share a key admitted above its limit, tried at TriedPerSecond by each of them.
	Overshoot      int64   `json:"overshoot"`
	TriedPerSecond float64 `json:"tried_per_second"`
}

// Staleness is a distribution in milliseconds.
type Staleness struct {
	Median float64 `json:"median"`
	P90    float64 `json:"p90"`
	Max    float64 `json:"max"`
}

func (p *Point) progress() string {
	return fmt.Sprintf("flush interval %.0f ms: %.3f commands for each decision; in Redis after %.1f ms, seen elsewhere after %.1f ms; overshoot %d",
		p.IntervalMS, p.per(float64(p.Usage.Work.Commands)), p.Redis.Median, p.Other.Median, p.Overshoot)
}

func (p *Point) per(v float64) float64 { return v / float64(max(p.Load.Decisions, 1)) }

func (o options) point(ctx context.Context, env *rival.Env, interval time.Duration) (*Point, error) {
	p := &Point{IntervalMS: float64(interval) / float64(time.Millisecond)}
	own := *env
	own.Flush = interval
	if err := p.load(ctx, &own, o); err != nil {
		return nil, err
	}
	pr, err := startPair(ctx, interval)
	if err != nil {
		return nil, err
	}
	err = errors.Join(p.staleness(ctx, pr, o.samples), p.overshoot(ctx, pr))
	return p, errors.Join(err, pr.close())
}

const batch = 100

// load sends decisions to a server at a fixed rate.
func (p *Point) load(ctx context.Context, env *rival.Env, o options) (err error) {
	s, err := rival.Twotier("twotier", 1, rival.TwoTier).Start(ctx, env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	before, err := measure.Of(ctx, s)
	if err != nil {
		return err
	}
	p.Load, err = drive.Run(ctx, s.Limiter, drive.Options{
		Workload: "zipf", Batch: batch, Workers: 8, Rate: o.rate, Duration: o.duration,
	})
	if err := errors.Join(err, p.Load.Err()); err != nil {
		return err
	}
	if err := s.Drain(ctx); err != nil {
		return err
	}
	after, err := measure.Of(ctx, s)
	p.Usage = after.Since(before)
	return err
}

func staleness(of []time.Duration) Staleness {
	slices.Sort(of)
	at := func(q float64) float64 {
		return float64(of[int(q*float64(len(of)-1))]) / float64(time.Millisecond)
	}
	return Staleness{at(0.5), at(0.9), at(1)}
}

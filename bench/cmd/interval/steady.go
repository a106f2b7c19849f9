package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"twotier/bench/load"
	"twotier/bench/measure"
	"twotier/bench/rival"
)

// bucketsPerEvent is the number of levels of the default ladder.
const bucketsPerEvent = 3

// Steady is what the stream of distinct keys did.
type Steady struct {
	Load  load.Result   `json:"load"`
	Usage measure.Usage `json:"usage"`
	// Memory is what the keys took up, of which Redis holds at least one for each add.
	Memory measure.Memory `json:"memory"`
	// Pending is twotier_pending_buckets, once a second.
	Pending     []int64 `json:"pending_buckets"`
	MeanPending int64   `json:"mean_pending_buckets"`
	MaxPending  int64   `json:"max_pending_buckets"`
	// Bound is what five seconds of the stream come to. Bounded says that Pending stayed below.
	Bound   int64 `json:"bound"`
	Bounded bool  `json:"bounded"`
	// Drained is the time in seconds from the last add until nothing was pending.
	Drained float64 `json:"drained_seconds"`
}

// steady sends a stream of adds, each to a key of its own, through twotier into a Redis.
func steady(ctx context.Context, env *rival.Env, rate float64, duration time.Duration) (d Steady, err error) {
	s, err := rival.Twotier("twotier", 1, rival.TwoTier).Start(ctx, env)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	before, err1 := measure.Of(ctx, s)
	size, err2 := measure.MemoryOf(ctx, s)
	if err := errors.Join(err1, err2); err != nil {
		return d, err
	}
	sampling, stop := context.WithCancel(ctx)
	sampled := make(chan []int64, 1)
	go func() { sampled <- runSample(sampling, s) }()
	d.Load, err = load.Run(ctx, load.Options{
		Addr: s.Servers[0].Addr, Op: load.OpBatch, PerCall: 500, Keys: "distinct", Conns: 8, Rate: rate, Duration: duration,
	})
	stop()
	d.Pending = <-sampled
	if err := errors.Join(err, d.Load.Err()); err != nil {
		return d, err
	}
	d.Bound = int64(5 * rate * bucketsPerEvent)
	if len(d.Pending) > 0 {
		d.MaxPending, d.MeanPending = slices.Max(d.Pending), mean(d.Pending)
	}
	d.Bounded = d.MaxPending <= d.Bound
	return d, d.finish(ctx, s, before, size)
}

func mean(of []int64) (m int64) {
	for _, v := range of {
		m += v
	}
	return m / int64(len(of))
}

// finish waits until Redis has everything and asks what it took.
func (d *Steady) finish(ctx context.Context, s *rival.Stand, before measure.Usage, size measure.Memory) error {
	last := time.Now()
	if err := s.Drain(ctx); err != nil {
		return err
	}
	d.Drained = time.Since(last).Seconds()
	after, err1 := measure.Of(ctx, s)
	full, err2 := measure.MemoryOf(ctx, s)
	keys, err3 := s.RDB.DBSize(ctx).Result()
	d.Usage, d.Memory = after.Since(before), full.Since(size)
	d.Memory.Keys = d.Load.Operations
	if keys < d.Load.Operations {
		return fmt.Errorf("%d adds to distinct keys, but Redis has %d keys", d.Load.Operations, keys)
	}
	return errors.Join(err1, err2, err3)
}

// runSample reads what is pending once a second until ctx is done.
func runSample(ctx context.Context, s *rival.Stand) (pending []int64) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return pending
		case <-tick.C:
			if v, err := s.Servers[0].Metric(ctx, "twotier_pending_buckets"); err == nil {
				pending = append(pending, int64(v))
			}
		}
	}
}

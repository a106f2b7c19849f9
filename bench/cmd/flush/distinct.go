package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier/bench/limiter"
	"twotier/bench/load"
	"twotier/bench/proc"
)

// ladder is that of the rules: two levels, so every event changes two buckets.
const ladder = "namespace.default.ladder = 1s x 60, 1m x 60\n"

const bucketsPerEvent = 2

// Distinct is what the stream of distinct keys did.
type Distinct struct {
	Load load.Result `json:"load"`
	Work Work        `json:"redis_work"`
	// TwotierCPU is processor time in seconds, TwotierRSS the resident memory at the end in bytes.
	TwotierCPU float64 `json:"twotier_cpu_seconds"`
	TwotierRSS int64   `json:"twotier_rss"`
	// Pending is twotier_pending_buckets, once a second.
	Pending     []int64 `json:"pending_buckets"`
	MeanPending int64   `json:"mean_pending_buckets"`
	MaxPending  int64   `json:"max_pending_buckets"`
	// Bound is what five seconds of the stream come to. Bounded says that Pending stayed below.
	Bound   int64 `json:"bound"`
	Bounded bool  `json:"bounded"`
	// Drained is the time in seconds from the last add until nothing was pending.
	Drained float64 `json:"drained_seconds"`
	// Keys is how many keys Redis held afterwards, which must be at least one for each add.
	Keys int64 `json:"redis_keys"`
}

// distinct sends a stream of adds, each to a key of its own, through twotier into a Redis.
func distinct(ctx context.Context, rate float64, duration time.Duration) (d Distinct, err error) {
	s, err := startStack(ctx)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	before, err := workOf(ctx, s.rdb)
	if err != nil {
		return d, err
	}
	sampling, stop := context.WithCancel(ctx)
	sampled := make(chan []int64, 1)
	go func() { sampled <- s.runSample(sampling) }()
	d.Load, err = load.Run(ctx, load.Options{
		Addr: s.twotier.Addr, Op: load.OpBatch, PerCall: 500, Keys: "distinct", Conns: 8, Rate: rate, Duration: duration,
	})
	stop()
	d.Pending = <-sampled
	if err := errors.Join(err, d.Load.Err()); err != nil {
		return d, err
	}
	d.Bound = int64(5 * rate * bucketsPerEvent)
	for _, p := range d.Pending {
		d.MaxPending = max(d.MaxPending, p)
	}
	d.MeanPending = mean(d.Pending)
	d.Bounded = d.MaxPending <= d.Bound
	return d, d.finish(ctx, s, before)
}

func mean(of []int64) (m int64) {
	for _, v := range of {
		m += v
	}
	return m / int64(max(len(of), 1))
}

// finish waits until Redis has everything and asks what it took.
func (d *Distinct) finish(ctx context.Context, s *stack, before Work) error {
	last := time.Now()
	if err := s.drain(ctx); err != nil {
		return err
	}
	d.Drained = time.Since(last).Seconds()
	after, err := workOf(ctx, s.rdb)
	if err != nil {
		return err
	}
	d.Work = after.since(before)
	cpu, err1 := s.twotier.CPU()
	d.TwotierCPU = cpu.Seconds()
	rss, err2 := s.twotier.RSS()
	d.TwotierRSS = rss
	keys, err3 := s.rdb.DBSize(ctx).Result()
	d.Keys = keys
	if keys < d.Load.Operations {
		return fmt.Errorf("%d adds to distinct keys, but Redis has %d keys", d.Load.Operations, keys)
	}
	return errors.Join(err1, err2, err3)
}

// runSample reads what is pending once a second until ctx is done.
func (s *stack) runSample(ctx context.Context) (pending []int64) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return pending
		case <-tick.C:
			if v, err := s.twotier.Metric(ctx, "twotier_pending_buckets"); err == nil {
				pending = append(pending, int64(v))
			}
		}
	}
}

// A stack is twotier above a Redis of its own.
type stack struct {
	redis   *proc.Redis
	rdb     *redis.Client
	twotier *proc.Server
	config  func() error
}

func startStack(ctx context.Context) (*stack, error) {
	path, remove, err := proc.ConfigFile(ladder)
	if err != nil {
		return nil, err
	}
	redis, err := proc.StartRedis(ctx)
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	twotier, err := proc.StartTwotier(ctx, "--redis", "redis://"+redis.Addr, "--config", path)
	if err != nil {
		return nil, errors.Join(err, redis.Stop(), remove())
	}
	return &stack{redis, limiter.Connect(redis.Addr, 2), twotier, remove}, nil
}

func (s *stack) stop() error {
	return errors.Join(s.twotier.Stop(), s.rdb.Close(), s.redis.Stop(), s.config())
}

// drain waits until Redis has acknowledged everything, for a minute at most.
func (s *stack) drain(ctx context.Context) error {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		pending, err := s.twotier.Metric(ctx, "twotier_pending_buckets")
		if err != nil || pending == 0 {
			return err
		}
	}
	return errors.New("still pending after a minute")
}

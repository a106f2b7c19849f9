package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"twotier/bench/limiter"
	"twotier/bench/pace"
	"twotier/bench/rival"
	"twotier/redisstore"
	"twotier/syncer"
)

// A pair is two counters over one Redis, and what reads there directly.
type pair struct {
	redis  *rival.Stand
	a, b   *syncer.Counter
	direct *redisstore.Direct
}

func startPair(ctx context.Context, interval time.Duration) (p *pair, err error) {
	p = &pair{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.redis, err = rival.Redis(ctx); err != nil {
		return p, err
	}
	for _, c := range []**syncer.Counter{&p.a, &p.b} {
		store, err := rival.OpenStore(ctx, p.redis, p.redis.Redis.Addr)
		if err != nil {
			return p, err
		}
		counter, err := syncer.New(syncer.Options{Store: store, FlushInterval: interval})
		if err != nil {
			return p, err
		}
		*c = counter
		if err := counter.Open(ctx); err != nil {
			return p, err
		}
	}
	store, err := rival.OpenStore(ctx, p.redis, p.redis.Redis.Addr)
	if err != nil {
		return p, err
	}
	p.direct, err = redisstore.NewDirect(redisstore.DirectOptions{
		Store: store, Now: func() int64 { return time.Now().UnixMilli() }, Writer: "reader",
	})
	if err != nil {
		return p, err
	}
	return p, p.direct.Open(ctx)
}

func (p *pair) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var errs []error
	for _, c := range []*syncer.Counter{p.a, p.b} {
		if c != nil {
			errs = append(errs, c.Close(ctx))
		}
	}
	if p.direct != nil {
		errs = append(errs, p.direct.Close(ctx))
	}
	if p.redis != nil {
		errs = append(errs, p.redis.Close())
	}
	return errors.Join(errs...)
}

const hour = int64(3_600_000)

// doer is a counter or what reads in Redis.
type doer interface {
	Do(ctx context.Context, op *syncer.Op, res *syncer.Result) error
}

func held(ctx context.Context, d doer, key string) (int64, error) {
	op := syncer.Op{Kind: syncer.Count, Checks: []syncer.Check{{Key: []byte(key), N: 1, Limits: []syncer.Limit{{Window: hour}}}}}
	var res syncer.Result
	if err := d.Do(ctx, &op, &res); err != nil {
		return 0, fmt.Errorf("count: %w", err)
	}
	return res.Checks[0].Limits[0].Hi, nil
}

func add(ctx context.Context, c *syncer.Counter, key string) error {
	op := syncer.Op{Kind: syncer.Add, Checks: []syncer.Check{{Key: []byte(key), N: 1}}}
	var res syncer.Result
	return c.Do(ctx, &op, &res)
}

// staleness times how long adds of one counter take to be seen in Redis and by the other, which shares the key and counts it
// all the time. Adds come at random moments of the flush interval.
func (p *Point) staleness(ctx context.Context, pr *pair, samples int) error {
	const key = "stale"
	if err := pr.share(key); err != nil {
		return err
	}
	interval := time.Duration(p.IntervalMS * float64(time.Millisecond))
	busy, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { runAdds(busy, pr.b, key) })
	defer wg.Wait()
	defer stop()
	var inRedis, elsewhere []time.Duration
	for range samples {
		if err := pace.Sleep(ctx, time.Duration(rand.Float64()*float64(interval))); err != nil {
			return err
		}
		own := fmt.Sprint(key, rand.Uint64())
		start := time.Now()
		if err := add(ctx, pr.a, own); err != nil {
			return err
		}
		took, err := until(ctx, start, pr.direct, own, 1)
		if err != nil {
			return err
		}
		inRedis = append(inRedis, took)
		if took, err = p.elsewhere(ctx, pr, key); err != nil {
			return err
		}
		elsewhere = append(elsewhere, took)
	}
	p.Redis, p.Other = staleness(inRedis), staleness(elsewhere)
	return nil
}

// elsewhere adds many to the shared key at once and waits until the other counter sees them: the jump is larger than what it
// counts itself meanwhile.
func (p *Point) elsewhere(ctx context.Context, pr *pair, key string) (time.Duration, error) {
	const jump = 1_000_000
	before, err := held(ctx, pr.b, key)
	if err != nil {
		return 0, err
	}
	op := syncer.Op{Kind: syncer.Add, Checks: []syncer.Check{{Key: []byte(key), N: jump}}}
	var res syncer.Result
	start := time.Now()
	if err := pr.a.Do(ctx, &op, &res); err != nil {
		return 0, err
	}
	return until(ctx, start, pr.b, key, before+jump)
}

// until waits until at least so many are seen.
func until(ctx context.Context, start time.Time, d doer, key string, least int64) (time.Duration, error) {
	for time.Since(start) < 30*time.Second {
		n, err := held(ctx, d, key)
		if err != nil {
			return 0, err
		}
		if n >= least {
			return time.Since(start), nil
		}
		if err := pace.Sleep(ctx, 500*time.Microsecond); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("%s: not seen after 30 s", key)
}

// runAdds counts a key every millisecond.
func runAdds(ctx context.Context, c *syncer.Counter, key string) {
	for pace.Sleep(ctx, time.Millisecond) == nil && add(ctx, c, key) == nil {
	}
}

func (p *pair) share(key string) error {
	return errors.Join(p.a.Share(nil, []byte(key), true), p.b.Share(nil, []byte(key), true))
}

const (
	overshootLimit = 2000
	triedPerSecond = 2000
)

// overshoot has both counters admit events of one key until its limit is reached and everybody knows.
func (p *Point) overshoot(ctx context.Context, pr *pair) error {
	const key = "overshoot"
	if err := pr.share(key); err != nil {
		return err
	}
	p.TriedPerSecond = triedPerSecond
	var admitted atomic.Int64
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i, c := range []*syncer.Counter{pr.a, pr.b} {
		wg.Go(func() { errs[i] = p.try(ctx, limiter.NewLibrary("pair", c), key, &admitted) })
	}
	wg.Wait()
	p.Overshoot = admitted.Load() - overshootLimit
	return errors.Join(errs...)
}

// try asks at a fixed rate for as long as the limit lasts, twice over, and a few intervals more.
func (p *Point) try(ctx context.Context, l *limiter.Library, key string, admitted *atomic.Int64) error {
	length := time.Second*2*overshootLimit/triedPerSecond + 4*time.Duration(p.IntervalMS*float64(time.Millisecond))
	start := time.Now()
	for n := 0; ; n++ {
		due := time.Duration(n) * time.Second / triedPerSecond
		if due > length {
			return nil
		}
		if wait := due - time.Since(start); wait > 0 {
			if err := pace.Sleep(ctx, wait); err != nil {
				return err
			}
		}
		ok, err := limiter.Acquire(ctx, l, key, 1, 0, []limiter.Limit{{Window: hour, Max: overshootLimit}})
		if err != nil {
			return err
		}
		if ok {
			admitted.Add(1)
		}
	}
}

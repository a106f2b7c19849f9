package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"twotier.dev/twotier/bench/limiter"
	"twotier.dev/twotier/bench/rival"
	"twotier.dev/twotier/internal/load"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// A pair is two counters over one Redis, and what reads there directly.
type pair struct {
	stand    *rival.Stand
	a, b     *syncer.Counter
	direct   *redisstore.Direct
	interval time.Duration
}

func startPair(ctx context.Context, interval time.Duration) (*pair, error) {
	s, err := rival.Redis()
	p := &pair{stand: s, interval: interval}
	for _, c := range []**syncer.Counter{&p.a, &p.b} {
		var store *redisstore.Store
		if err == nil {
			store, err = s.OpenStore(ctx)
		}
		if err == nil {
			*c, err = s.OpenCounter(ctx, syncer.Options{Store: store, FlushInterval: interval})
		}
	}
	if err == nil {
		p.direct, err = s.OpenDirect(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return p, nil
}

// share has both counters count a key that the other one counts, too.
func (p *pair) share(key string) error {
	return errors.Join(p.a.Share(nil, []byte(key), true), p.b.Share(nil, []byte(key), true))
}

// staleness times how long adds of one counter take to be seen in Redis and by the other, which
// shares the key and counts it all the time. Adds come at random moments of the flush interval.
func (p *pair) staleness(
	ctx context.Context, samples int,
) (inRedis, elsewhere Staleness, err error) {
	const key = "stale"
	if err := p.share(key); err != nil {
		return inRedis, elsewhere, err
	}
	busy, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for load.Sleep(busy, time.Millisecond) == nil && add(busy, p.b, key, 1) == nil {
		}
	})
	defer wg.Wait()
	defer stop()
	var redis, other []time.Duration
	for range samples {
		if err := load.Sleep(ctx, time.Duration(rand.Float64()*float64(p.interval))); err != nil {
			return inRedis, elsewhere, err
		}
		r, err1 := p.timed(ctx, p.direct, fmt.Sprint(key, rand.Uint64()), 1)
		// More than the other counter counts itself meanwhile.
		o, err2 := p.timed(ctx, p.b, key, 1_000_000)
		if err := errors.Join(err1, err2); err != nil {
			return inRedis, elsewhere, err
		}
		redis, other = append(redis, r), append(other, o)
	}
	return staleness(redis), staleness(other), nil
}

// timed adds n to a key by the first counter and waits until they are seen.
func (p *pair) timed(ctx context.Context, seen doer, key string, n int64) (time.Duration, error) {
	before, err := held(ctx, seen, key)
	start := time.Now()
	if err := errors.Join(err, add(ctx, p.a, key, n)); err != nil {
		return 0, err
	}
	for time.Since(start) < time.Minute {
		now, err := held(ctx, seen, key)
		if err != nil {
			return 0, err
		}
		if now >= before+n {
			return time.Since(start), nil
		}
		if err := load.Sleep(ctx, 500*time.Microsecond); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("%s: not seen after a minute", key)
}

const (
	overshootLimit = 2000
	triedPerSecond = 2000
)

// overshoot has both counters admit events of one key, at a fixed rate of each, until its limit is
// reached and everybody knows: for as long as the limit lasts, twice over, and a few intervals
// more.
func (p *pair) overshoot(ctx context.Context) (int64, error) {
	const key = "overshoot"
	if err := p.share(key); err != nil {
		return 0, err
	}
	check := []limiter.Check{{Key: key, N: 1,
		Limits: []limiter.Limit{{Window: hour, Max: overshootLimit}}}}
	admitted := make([]int64, 2)
	timings := make([]load.Timing, 2)
	var wg sync.WaitGroup
	for i, c := range []*syncer.Counter{p.a, p.b} {
		l := limiter.NewLibrary("pair", c)
		try := load.Worker{
			Next: func() (time.Duration, bool) { return 0, true },
			Do: func() error {
				ok, err := l.AcquireAll(ctx, check, 0)
				if ok {
					admitted[i]++
				}
				return err
			},
		}
		loop := load.Loop{Rate: triedPerSecond,
			Duration: time.Second*2*overshootLimit/triedPerSecond + 4*p.interval}
		wg.Go(func() { timings[i] = loop.Run(ctx, []load.Worker{try}) })
	}
	wg.Wait()
	err := errors.Join(timings[0].Err(), timings[1].Err(), ctx.Err())
	return admitted[0] + admitted[1] - overshootLimit, err
}

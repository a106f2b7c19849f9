package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"twotier/bench/limiter"
	"twotier/bench/trace"
)

// liveRules are short, so that windows pass while one waits. Their sub-windows are as wide as any of up to a minute.
var liveRules = []limiter.Limit{{Window: 3_000, Max: 20}, {Window: 10_000, Max: 50}}

const (
	liveKeys = 8
	// liveGap is the mean time between the events of a key, burstEvery how many come by themselves before a burst does.
	liveGap    = 120 * time.Millisecond
	burstEvery = 30
	burst      = 25
)

// liveTrace is a Poisson stream of each key, with bursts: times are after the beginning.
func liveTrace(seed uint64, length time.Duration) (events []trace.Event) {
	r := rand.New(rand.NewPCG(seed, liveKeys))
	for at := time.Duration(0); at < length; at += time.Duration(r.ExpFloat64() * float64(liveGap/liveKeys)) {
		n := 1
		if r.IntN(burstEvery) == 0 {
			n = burst
		}
		key := fmt.Sprint("live", r.IntN(liveKeys))
		for range n {
			events = append(events, trace.Event{TS: at.Milliseconds(), Checks: []limiter.Check{{Key: key, N: 1, Limits: liveRules}}})
		}
	}
	return events
}

// playLive plays one trace to all limiters at the same time, as it happens, so that those with a clock of their own can be
// judged. A decision is judged at the time at which it was asked for.
func playLive(ctx context.Context, all []limiter.Limiter, seed uint64, length time.Duration) ([]*Tally, error) {
	events := liveTrace(seed, length)
	start := time.Now()
	tallies := make([]*Tally, len(all))
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, l := range all {
		tallies[i] = &Tally{Name: l.Name(), Events: len(events)}
		wg.Go(func() { errs[i] = tallies[i].live(ctx, l, start, events) })
	}
	wg.Wait()
	return tallies, errors.Join(errs...)
}

func (t *Tally) live(ctx context.Context, l limiter.Limiter, start time.Time, events []trace.Event) error {
	var own limiter.Exact
	for _, e := range events {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Until(start.Add(time.Duration(e.TS) * time.Millisecond))):
		}
		e.TS = time.Now().UnixMilli()
		allowed, err := l.AcquireAll(ctx, e.Checks, e.TS)
		if err != nil {
			return fmt.Errorf("live: %w", err)
		}
		t.judge(&own, e, allowed)
	}
	return nil
}

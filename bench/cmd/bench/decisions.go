package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/limiter"
	"twotier.dev/twotier/bench/rival"
)

// Decisions replays one trace through every limiter and judges each decision: how many events the
// limiter admitted, how many of these it should have refused, and how many it refused too early.
// Limiters that use their own clock are only judged live.
type Decisions struct {
	Receivers int           `help:"Receivers; each gets about 100 messages a day." default:"400"`
	Seed      uint64        `help:"Seed of the traces." default:"1"`
	Rivals    []string      `help:"Names of limiters; * matches any part." default:"twotier,twotier-redis-mode,twotier-lib,zset*,hash*,stream-lua,incr-lua,redis-rate,sentinel,gubernator*"`
	Live      time.Duration `help:"Length of the live trace." default:"20s"`
}

// DecisionsResult is the result of Decisions.
type DecisionsResult struct {
	Hours float64 `json:"hours"`
	// Messages are the tallies of the message-control day, with the exact log first.
	Messages []*Tally `json:"messages"`
	// Live are the tallies of the live trace, including limiters that use their own clock.
	Live []*Tally `json:"live"`
	// Worked is the outcome of each worked example, in the order of Messages.
	Worked []Worked `json:"worked_examples"`
	// Missing are the limiters that can't run here, with the reason.
	Missing []string `json:"missing,omitempty"`
}

// Worked is one worked example, with the number of its last tries that each limiter admitted.
type Worked struct {
	Title    string `json:"title"`
	Admitted []int  `json:"admitted"`
}

// margin is by how much the trace is shorter than a day: twotier accepts events that are at most a
// day old, and a replay takes a while.
const margin = 10 * time.Minute

// Run plays a past day, the worked examples, and the live trace.
func (o *Decisions) Run(ctx context.Context, b *bench) (err error) {
	r := DecisionsResult{Hours: (24*time.Hour - margin).Hours()}
	timed, all, stop, err := o.start(ctx, b, &r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	// The whole trace is in the past, because a limiter may refuse events in the future.
	now := time.Now()
	m := drive.Messages{
		Seed: o.Seed, Receivers: o.Receivers, From: now.Add(margin - 24*time.Hour).UnixMilli(),
		To: now.UnixMilli(),
	}
	if err := r.play(ctx, timed, m.Events(), now); err != nil {
		return err
	}
	if r.Live, err = playLive(ctx, all, o.Seed, o.Live); err != nil {
		return err
	}
	return save(b, o, r)
}

// start starts the rivals. all lists all limiters, and timed the ones that accept the time of an
// event. The judge comes first in both.
func (o *Decisions) start(ctx context.Context, b *bench,
	r *DecisionsResult) (timed, all []limiter.Limiter, stop func() error, err error) {
	rivals, err1 := rival.Select(rival.All(), o.Rivals)
	env, err2 := b.programs(ctx)
	if err := errors.Join(err1, err2); err != nil {
		return nil, nil, nil, err
	}
	var stands rival.Stand
	timed, all = []limiter.Limiter{&limiter.Exact{}}, []limiter.Limiter{&limiter.Exact{}}
	for _, rv := range rivals {
		s, err := rv.Start(ctx, env)
		if errors.Is(err, limiter.ErrNotAvailable) {
			r.Missing = append(r.Missing, err.Error())
			continue
		}
		if err != nil {
			return nil, nil, nil, errors.Join(err, stands.Close())
		}
		stands.OnClose(s.Close)
		all = append(all, s.Limiter)
		if !rv.Own {
			timed = append(timed, s.Limiter)
		}
	}
	return timed, all, stands.Close, nil
}

// play replays the trace and the examples through every limiter. Eleven o'clock is a full hour in
// the recent past.
func (r *DecisionsResult) play(ctx context.Context, all []limiter.Limiter, events []limiter.Call,
	now time.Time) error {
	for _, l := range all {
		t, err := replay(ctx, l, events, time.Time{})
		if err != nil {
			return err
		}
		r.Messages = append(r.Messages, t)
		t.compare(r.Messages[0])
	}
	eleven := now.Truncate(time.Hour).Add(-2 * time.Hour).UnixMilli()
	for i, e := range examples() {
		w := Worked{Title: e.Title}
		for _, l := range all {
			n, err := e.run(ctx, l, "worked"+strconv.Itoa(i), eleven)
			if err != nil {
				return err
			}
			w.Admitted = append(w.Admitted, n)
		}
		r.Worked = append(r.Worked, w)
	}
	return nil
}

const (
	liveKeys = 8
	// liveGap is the mean time between the events of a key, burstEvery the number of single events
	// before a burst.
	liveGap    = 120 * time.Millisecond
	burstEvery = 30
	burst      = 25
)

// liveTrace returns a Poisson stream of events for each key, with bursts. Times are relative to the
// beginning. Rules have short windows, so that windows pass during the run; their sub-windows are
// as wide as for all windows up to a minute.
func liveTrace(seed uint64, length time.Duration) (events []limiter.Call) {
	rules := []limiter.Limit{{Window: 3_000, Max: 20}, {Window: 10_000, Max: 50}}
	r := rand.New(rand.NewPCG(seed, liveKeys))
	gap := func() time.Duration { return time.Duration(r.ExpFloat64() * float64(liveGap/liveKeys)) }
	for at := time.Duration(0); at < length; at += gap() {
		n := 1
		if r.IntN(burstEvery) == 0 {
			n = burst
		}
		check := limiter.One(fmt.Sprint("live", r.IntN(liveKeys)), rules)
		for range n {
			events = append(events, limiter.At(at.Milliseconds(), check))
		}
	}
	return events
}

// playLive plays one trace to all limiters at the same time, in real time, so that it can judge
// limiters that use their own clock.
func playLive(ctx context.Context, all []limiter.Limiter, seed uint64,
	length time.Duration) ([]*Tally, error) {
	events := liveTrace(seed, length)
	start := time.Now()
	tallies := make([]*Tally, len(all))
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, l := range all {
		wg.Go(func() { tallies[i], errs[i] = replay(ctx, l, events, start) })
	}
	wg.Wait()
	return tallies, errors.Join(errs...)
}

package main

import (
	"context"
	"errors"
	"log"
	"strings"
	"time"

	"twotier/bench/drive"
	"twotier/bench/limiter"
	"twotier/bench/measure"
	"twotier/bench/rival"
)

// errOneByOne says that a limiter has no calls with several decisions.
var errOneByOne = errors.New("decides one by one")

// Search is what was found for one limiter.
type Search struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Batch int    `json:"batch"`
	// Highest is the largest rate that was good, in messages per second; 0 if none was.
	Highest float64 `json:"highest_per_second"`
	// Steps are all that were tried. Held is a longer run at the highest rate, AtTarget at the rate that the scenario asks for.
	Steps    []Step        `json:"steps"`
	Held     drive.Result  `json:"held"`
	AtTarget drive.Result  `json:"at_target"`
	Usage    measure.Usage `json:"held_usage"`
	// HeldDrain and TargetDrain are how long it took afterwards until Redis had everything, in seconds.
	HeldDrain   float64 `json:"held_drained_seconds"`
	TargetDrain float64 `json:"at_target_drained_seconds"`
}

// Step is one rate that was tried.
type Step struct {
	Rate float64 `json:"rate"`
	P99  float64 `json:"p99_ms"`
	// Drained is how long it took afterwards until Redis had everything, in seconds.
	Drained float64 `json:"drained_seconds"`
	Good    bool    `json:"good"`
}

const (
	lowest = 2000.0
	// mostDrain is how far Redis may be behind at the end: two flush intervals and the time that a flush takes.
	mostDrain = 500 * time.Millisecond
	// doublings bound the way up, halvings the way back: the result is good to 3 %.
	doublings = 9
	halvings  = 5
)

// search finds the highest good rate: it doubles the rate until one is bad, and halves the gap.
func (o options) search(ctx context.Context, env *rival.Env, rv rival.Rival, batch int) (found *Search, err error) {
	s, err := rv.Start(ctx, env)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if _, ok := s.Limiter.(limiter.Batcher); batch > 1 && !ok {
		return nil, errOneByOne
	}
	f := &finder{options: o, stand: s, found: &Search{Name: rv.Name, Title: s.Name(), Batch: batch}}
	if err := f.climb(ctx); err != nil {
		return nil, err
	}
	return f.found, f.hold(ctx)
}

// finder searches with one stand.
type finder struct {
	options
	stand *rival.Stand
	found *Search
	seed  uint64
}

func (f *finder) climb(ctx context.Context) error {
	good, bad := 0.0, 0.0
	for step := range doublings {
		rate := lowest * float64(int(1)<<step)
		ok, err := f.good(ctx, rate)
		if err != nil {
			return err
		}
		if !ok {
			bad = rate
			break
		}
		good = rate
	}
	for range halvings {
		if bad == 0 {
			break
		}
		ok, err := f.good(ctx, (good+bad)/2)
		if err != nil {
			return err
		}
		if ok {
			good = (good + bad) / 2
		} else {
			bad = (good + bad) / 2
		}
	}
	f.found.Highest = good
	return nil
}

// good tries a rate, a second time if it was bad: machines hiccup.
func (f *finder) good(ctx context.Context, rate float64) (bool, error) {
	ok, err := f.try(ctx, rate)
	if ok || err != nil {
		return ok, err
	}
	return f.try(ctx, rate)
}

// try tries a rate. Before the next, Redis catches up.
func (f *finder) try(ctx context.Context, rate float64) (bool, error) {
	r, drained, err := f.run(ctx, rate, min(time.Second, f.probe/4), f.probe)
	if err != nil {
		return false, err
	}
	sent := r.Calls + r.Unsent
	step := Step{Rate: rate, P99: float64(r.Latency.P99) / 1e3, Drained: drained}
	step.Good = r.Latency.P99 < f.bound.Microseconds() && r.Unsent*100 <= sent && drained <= mostDrain.Seconds()
	f.found.Steps = append(f.found.Steps, step)
	log.Printf("%-24s %3d a call %8.0f/s: p99 %.2f ms, %d of %d unsent, in Redis after %.2f s", f.found.Name, f.found.Batch, rate, step.P99,
		r.Unsent, sent, drained)
	return step.Good, nil
}

func (f *finder) run(ctx context.Context, rate float64, warmup, length time.Duration) (r drive.Result, drained float64, err error) {
	f.seed++
	r, err = drive.Run(ctx, f.stand.Limiter, drive.Options{
		Workload: "messages", Keys: f.users, Seed: f.seed, Batch: f.found.Batch, Workers: max(f.workers/f.found.Batch, 8),
		Rate: rate, Warmup: warmup, Duration: length,
	})
	end := time.Now()
	err = errors.Join(err, r.Err(), f.stand.Drain(ctx))
	return r, time.Since(end).Seconds(), err
}

// hold runs longer at what was found and at the target; a quarter of the time for what is not twotier.
func (f *finder) hold(ctx context.Context) error {
	length, atTarget := f.options.hold, f.options.atTarget
	if !strings.HasPrefix(f.found.Name, "twotier") {
		length, atTarget = length/4, atTarget/4
	}
	before, err := measure.Of(ctx, f.stand)
	if err != nil {
		return err
	}
	if f.found.Highest > 0 {
		if f.found.Held, f.found.HeldDrain, err = f.run(ctx, f.found.Highest, 0, length); err != nil {
			return err
		}
		log.Printf("%-24s %3d a call %8.0f/s held: p99 %.2f ms", f.found.Name, f.found.Batch, f.found.Highest,
			float64(f.found.Held.Latency.P99)/1e3)
	}
	after, err := measure.Of(ctx, f.stand)
	if err != nil {
		return err
	}
	f.found.Usage = after.Since(before)
	f.found.AtTarget, f.found.TargetDrain, err = f.run(ctx, f.target, 0, atTarget)
	return err
}

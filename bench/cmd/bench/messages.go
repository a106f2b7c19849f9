package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/limiter"
	"twotier.dev/twotier/bench/rival"
)

// Messages runs the message-control scenario: every message must hold to four rules at once, two of
// its receiver and two of its receiver and content; receivers are drawn evenly from ten million;
// messages come in an open loop. It searches for the highest rate at which the 99th percentile of
// the latency, from when a message was due, stays below a bound, and then holds a target rate for
// longer.
type Messages struct {
	Rivals   []string      `help:"Names of limiters." default:"hash-lua,gubernator-1,twotier-lib,twotier"`
	Users    uint64        `help:"Receivers to draw from." default:"10000000"`
	Probe    time.Duration `help:"Length of one step of the search." default:"1s"`
	Hold     time.Duration `help:"Length of the run at the highest rate." default:"15s"`
	AtTarget time.Duration `help:"Length of the run at the target." default:"60s"`
	Target   float64       `help:"Target rate, in messages per second." default:"100000"`
	Bound    time.Duration `help:"Upper bound of the 99th percentile." default:"5ms"`
	Workers  int           `help:"Concurrent calls." default:"128"`
	Batch    int           `help:"Messages per batched call; single calls run, too." default:"50"`
}

// MessagesResult is the result of Messages.
type MessagesResult struct {
	Searches []*Search `json:"searches"`
}

// Search is the result for one limiter.
type Search struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Batch int    `json:"batch"`
	// Highest is the largest good rate, in messages per second; 0 if none was good.
	Highest float64 `json:"highest_per_second"`
	// Steps are all tried rates. Held is a longer run at the highest rate, AtTarget at the rate
	// that the scenario requires.
	Steps    []RateStep   `json:"steps"`
	Held     drive.Result `json:"held"`
	AtTarget drive.Result `json:"at_target"`
	Usage    rival.Usage  `json:"held_usage"`
	// TargetUsage is the usage of the run at the target.
	TargetUsage rival.Usage `json:"at_target_usage"`
	// HeldDrain and TargetDrain are the time afterwards until Redis had everything, in seconds.
	HeldDrain   float64 `json:"held_drained_seconds"`
	TargetDrain float64 `json:"at_target_drained_seconds"`

	try func(rate float64, warmup, length time.Duration) (*rival.Run, error)
}

// RateStep is one rate that was tried.
type RateStep struct {
	Rate    float64 `json:"rate"`
	P99     float64 `json:"p99_ms"`
	Drained float64 `json:"drained_seconds"`
	Good    bool    `json:"good"`
}

const (
	lowestRate = 2000.0
	// mostDrain is how far Redis may be behind at the end: two flush intervals and the duration of
	// a flush.
	mostDrain = 500 * time.Millisecond
	// doublings bounds the way up, halvings the way back: the result is good to 3 %.
	doublings = 9
	halvings  = 5
)

// Run writes the results so far after every rival.
func (o *Messages) Run(ctx context.Context, b *bench) error {
	rivals, err1 := rival.Select(rival.All(), o.Rivals)
	env, err2 := b.programs(ctx)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	var r MessagesResult
	for _, rv := range rivals {
		found, err := o.search(ctx, env, rv)
		r.Searches = append(r.Searches, found...)
		if err != nil && !errors.Is(err, limiter.ErrNotAvailable) {
			return fmt.Errorf("%s: %w", rv.Name, err)
		}
		if err := save(b, o, r); err != nil {
			return err
		}
	}
	return nil
}

// search finds the highest good rate of a rival, with one message in a call and with many.
func (o *Messages) search(ctx context.Context, env rival.Env,
	rv rival.Rival) (all []*Search, err error) {
	for _, batch := range []int{1, o.Batch} {
		s, err := rv.Start(ctx, env)
		if err != nil {
			return all, err
		}
		if batch > 1 && rv.OneByOne {
			return all, s.Close()
		}
		f := &Search{Name: rv.Name, Title: s.Name(), Batch: batch}
		seed := uint64(0)
		f.try = func(rate float64, warmup, length time.Duration) (*rival.Run, error) {
			seed++
			return s.Drive(ctx, drive.Options{
				Workload: "messages", Keys: o.Users, Seed: seed, Batch: batch,
				Workers: max(o.Workers/batch, 8), Rate: rate, Warmup: warmup, Duration: length,
			})
		}
		if err := errors.Join(f.climb(o), f.hold(o), s.Close()); err != nil {
			return all, err
		}
		all = append(all, f)
	}
	return all, nil
}

// climb doubles the rate until one is bad, and then bisects.
func (s *Search) climb(o *Messages) error {
	bad := 0.0
	for range doublings + halvings {
		rate := max(2*s.Highest, lowestRate)
		if bad > 0 {
			rate = (s.Highest + bad) / 2
		}
		good, err := s.good(o, rate)
		switch {
		case err != nil:
			return err
		case good:
			s.Highest = rate
		default:
			bad = rate
		}
		highest := lowestRate * (1 << (doublings - 1))
		if bad > 0 && bad-s.Highest < bad*0.03 || bad == 0 && rate >= highest {
			break
		}
	}
	return nil
}

// good tries a rate, and tries it again if it was bad, because machines hiccup.
func (s *Search) good(o *Messages, rate float64) (bool, error) {
	for range 2 {
		r, err := s.try(rate, min(time.Second, o.Probe/4), o.Probe)
		if err != nil {
			return false, err
		}
		step := RateStep{Rate: rate, P99: float64(r.Latency.P99) / 1e3, Drained: r.Drained}
		step.Good = r.Latency.P99 < o.Bound.Microseconds() && r.Unsent*100 <= r.Calls+r.Unsent &&
			r.Drained <= mostDrain.Seconds()
		s.Steps = append(s.Steps, step)
		log.Printf("%-24s %3d a call %8.0f/s: p99 %.2f ms, %d unsent, in Redis after %.2f s",
			s.Name, s.Batch, rate, step.P99, r.Unsent, r.Drained)
		if step.Good {
			return true, nil
		}
	}
	return false, nil
}

// hold runs longer at the highest rate and at the target.
func (s *Search) hold(o *Messages) error {
	length, atTarget := o.Hold, o.AtTarget
	if !strings.HasPrefix(s.Name, "twotier") {
		length, atTarget = length/4, atTarget/4
	}
	if s.Highest > 0 {
		r, err := s.try(s.Highest, 0, length)
		if err != nil {
			return err
		}
		s.Held, s.Usage, s.HeldDrain = r.Result, r.Usage, r.Drained
	}
	r, err := s.try(o.Target, 0, atTarget)
	if err != nil {
		return err
	}
	s.AtTarget, s.TargetUsage, s.TargetDrain = r.Result, r.Usage, r.Drained
	return nil
}

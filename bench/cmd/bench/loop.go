package main

import (
	"context"
	"fmt"
	"time"

	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/rival"
)

// Run is one run of the driver and the resources used until Redis had everything.
type Run struct {
	drive.Result
	Usage rival.Usage `json:"usage"`
	// Drained is how long it took after the last decision until Redis had everything, in seconds.
	Drained float64 `json:"drained_seconds"`
}

// measure drives a stand. A call that fails is an error.
func measure(ctx context.Context, s *rival.Stand, o drive.Options) (*Run, error) {
	d, err := drive.New(s.Limiter, o)
	if err != nil {
		return nil, err
	}
	before, err := s.Usage(ctx)
	if err != nil {
		return nil, err
	}
	r := &Run{}
	if r.Result, err = d.Run(ctx); err != nil {
		return nil, err
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	end := time.Now()
	if err := s.Drain(ctx); err != nil {
		return nil, fmt.Errorf("drain: %w", err)
	}
	r.Drained = time.Since(end).Seconds()
	after, err := s.Usage(ctx)
	r.Usage = after.Since(before)
	return r, err
}

// closed drives a stand in closed loops, with one decision per call and with a batch per call.
// batched is nil if the rival takes one decision at a time. Every loop has its own seed, and so its
// own distinct keys.
func closed(ctx context.Context, s *rival.Stand, o drive.Options,
	batch int) (single, batched *Run, err error) {
	if single, err = measure(ctx, s, o); err != nil || s.Rival.OneByOne {
		return single, nil, err
	}
	o.Batch, o.Workers, o.Seed = batch, 8, 2
	batched, err = measure(ctx, s, o)
	return single, batched, err
}

// Lasting returns decisions per second, including the time until Redis had all of them: the
// sustainable rate. It is 0 without a run.
func (r *Run) Lasting() float64 {
	if r == nil || r.Seconds+r.Drained == 0 {
		return 0
	}
	return float64(r.Decisions) / (r.Seconds + r.Drained)
}

// Per returns a figure per decision.
func (r *Run) Per(v float64) float64 { return v / float64(max(r.Decisions, 1)) }

// The figures of a run for each decision, or in seconds for each million decisions.

func (r *Run) Driver() float64   { return r.Per(r.Usage.Driver * 1e6) }
func (r *Run) Service() float64  { return r.Per(r.Usage.Service * 1e6) }
func (r *Run) RedisCPU() float64 { return r.Per(r.Usage.Redis.CPU * 1e6) }
func (r *Run) Commands() float64 { return r.Per(float64(r.Usage.Redis.Commands)) }
func (r *Run) Scripts() float64  { return r.Per(float64(r.Usage.Redis.Scripts)) }
func (r *Run) Reads() float64    { return r.Per(float64(r.Usage.Redis.Reads)) }
func (r *Run) Mallocs() float64  { return r.Per(float64(r.Usage.Mallocs)) }

// Bytes went to and from Redis.
func (r *Run) Bytes() float64 {
	return r.Per(float64(r.Usage.Redis.BytesIn + r.Usage.Redis.BytesOut))
}

// Passed returns the share of decisions that were admitted.
func (r *Run) Passed() float64 { return r.Per(float64(r.Admitted)) }

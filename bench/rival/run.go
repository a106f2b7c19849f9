package rival

import (
	"context"
	"errors"
	"fmt"
	"time"

	"twotier.dev/twotier/bench/drive"
)

// Run is one run of the driver and the resources used until Redis had everything.
type Run struct {
	drive.Result
	Usage Usage `json:"usage"`
	// Drained is the time from the last decision until Redis had everything, in seconds.
	Drained float64 `json:"drained_seconds"`
}

// Drive has the stand make decisions and measures their cost. A failed call is an error.
func (s *Stand) Drive(ctx context.Context, o drive.Options) (*Run, error) {
	d, err := drive.New(s.Limiter, o)
	if err != nil {
		return nil, err
	}
	before, err := s.Usage(ctx)
	if err != nil {
		return nil, err
	}
	r := &Run{}
	r.Result, err = d.Run(ctx)
	if err := errors.Join(err, r.Err()); err != nil {
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

// Lasting returns decisions per second, including the time until Redis had all of them: the
// sustainable rate. It is 0 without a run.
func (r *Run) Lasting() float64 {
	if r == nil || r.Seconds+r.Drained == 0 {
		return 0
	}
	measured := float64(r.Decisions)
	if r.Options.Warmup > 0 {
		measured = r.PerSecond * r.Seconds
	}
	return measured / (r.Seconds + r.Drained)
}

// Per returns a figure per decision.
func (r *Run) Per(v float64) float64 { return v / float64(max(r.Decisions, 1)) }

// Commands returns Redis commands for each decision.
func (r *Run) Commands() float64 { return r.Per(float64(r.Usage.Redis.Commands)) }

// Scripts returns calls of scripts for each decision.
func (r *Run) Scripts() float64 { return r.Per(float64(r.Usage.Redis.Scripts)) }

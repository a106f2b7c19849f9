package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"twotier/bench/drive"
	"twotier/bench/limiter"
	"twotier/bench/measure"
	"twotier/bench/rival"
)

// Row is one rival with one workload.
type Row struct {
	Name     string `json:"name"`
	Title    string `json:"title"`
	Workload string `json:"workload"`
	// Skipped says why it could not run.
	Skipped string `json:"skipped,omitempty"`
	// Single asks for one decision in each call, Batched for many, both as fast as they can; Open for single ones at a fixed
	// rate. Batched is nil where there is no such thing.
	Single  *Loop `json:"single,omitempty"`
	Batched *Loop `json:"batched,omitempty"`
	Open    *Loop `json:"open,omitempty"`
	// Memory is what all loops together have left behind.
	Memory measure.Memory `json:"memory"`
}

// Loop is one run and what it used, until Redis had everything.
type Loop struct {
	drive.Result
	Usage measure.Usage `json:"usage"`
	// Drained is how long it took after the last decision until Redis had everything, in seconds.
	Drained float64 `json:"drained_seconds"`
}

// measure starts a rival and drives it.
func (o options) measure(ctx context.Context, env *rival.Env, rv rival.Rival, workload string) (row *Row, err error) {
	s, err := rv.Start(ctx, env)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	row = &Row{Name: rv.Name, Title: s.Name(), Workload: workload}
	before, err := measure.MemoryOf(ctx, s)
	if err != nil {
		return nil, err
	}
	base := drive.Options{Workload: workload, Workers: o.workers, Duration: o.duration}
	if workload != "hot" {
		base.MaxCalls = rv.MaxKeys / 3
	}
	if row.Single, err = loop(ctx, s, base, 1); err != nil {
		return nil, err
	}
	if _, ok := s.Limiter.(limiter.Batcher); ok {
		batched := base
		batched.Batch, batched.Workers = o.batch, min(o.workers, 8)
		if row.Batched, err = loop(ctx, s, batched, 2); err != nil {
			return nil, err
		}
	}
	open := base
	open.Rate = o.rate
	if row.Open, err = loop(ctx, s, open, 3); err != nil {
		return nil, err
	}
	after, err := measure.MemoryOf(ctx, s)
	row.Memory = after.Since(before)
	return row, err
}

// loop runs once. Every loop has a seed, and so distinct keys, of its own.
func loop(ctx context.Context, s *rival.Stand, o drive.Options, seed uint64) (l *Loop, err error) {
	o.Seed = seed
	l = &Loop{}
	before, err := measure.Of(ctx, s)
	if err != nil {
		return nil, err
	}
	if l.Result, err = drive.Run(ctx, s.Limiter, o); err != nil {
		return nil, err
	}
	if err := l.Err(); err != nil {
		return nil, err
	}
	end := time.Now()
	if err := s.Drain(ctx); err != nil {
		return nil, fmt.Errorf("drain: %w", err)
	}
	l.Drained = time.Since(end).Seconds()
	after, err := measure.Of(ctx, s)
	l.Usage = after.Since(before)
	return l, err
}

// per is a figure for each decision.
func (l *Loop) per(v float64) float64 { return v / float64(max(l.Decisions, 1)) }

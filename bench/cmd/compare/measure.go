package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"twotier/bench/drive"
	"twotier/bench/findings"
	"twotier/bench/limiter"
	"twotier/bench/measure"
	"twotier/bench/rival"
)

// Row is one rival with one workload.
type Row struct{ findings.CompareRow }

// measure starts a rival and drives it.
func (o options) measure(ctx context.Context, env *rival.Env, rv rival.Rival, workload string) (row *Row, err error) {
	s, err := rv.Start(ctx, env)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	row = &Row{findings.CompareRow{Name: rv.Name, Title: s.Name(), Workload: workload}}
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
	for _, l := range []*findings.Loop{row.Single, row.Batched, row.Open} {
		if l != nil && workload == "distinct" {
			row.Memory.Keys += l.Decisions
		}
	}
	return row, err
}

// loop runs once. Every loop has a seed, and so distinct keys, of its own.
func loop(ctx context.Context, s *rival.Stand, o drive.Options, seed uint64) (l *findings.Loop, err error) {
	o.Seed = seed
	l = &findings.Loop{}
	d, err := drive.New(s.Limiter, o)
	if err != nil {
		return nil, err
	}
	before, err := measure.Of(ctx, s)
	if err != nil {
		return nil, err
	}
	if l.Result, err = d.Run(ctx); err != nil {
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

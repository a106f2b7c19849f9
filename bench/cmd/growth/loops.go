package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"twotier/bench/drive"
	"twotier/bench/limiter"
	"twotier/bench/measure"
	"twotier/bench/rival"
)

// LoopPoint is a closed loop at one point of a scale.
type LoopPoint struct {
	Name     string `json:"name"`
	Workload string `json:"workload"`
	Rules    int    `json:"rules"`
	Nodes    int    `json:"nodes"`
	// Single and Batched are decisions per second; Batched is 0 where there is no such call.
	Single  float64 `json:"single_per_second"`
	Batched float64 `json:"batched_per_second"`
	// Usage is that of the batched loop, or of the single one, and Decisions how many it made.
	Usage     measure.Usage `json:"usage"`
	Decisions int64         `json:"decisions"`
}

// fourRules are the first one, two, three and four that a decision is made under.
func fourRules() []limiter.Limit {
	return append(drive.Rules(), limiter.Limit{Window: 86_400_000, Max: 200}, limiter.Limit{Window: 600_000, Max: 30})
}

func (o options) rules(ctx context.Context, env *rival.Env) (points []LoopPoint, err error) {
	some, err := rival.Select(rival.All(), "zset-lua,hash-lua,redis-rate,twotier-lib,twotier,twotier-redis-mode")
	if err != nil {
		return nil, err
	}
	for n := 1; n <= len(fourRules()); n++ {
		for _, rv := range some {
			p, err := o.loop(ctx, env, rv, drive.Options{Workload: "zipf", Rules: fourRules()[:n]})
			if err != nil {
				return nil, err
			}
			p.Rules, p.Nodes = n, 1
			log.Printf("%d rules: %-20s %8.0f/s, in batches %8.0f/s", n, p.Name, p.Single, p.Batched)
			points = append(points, *p)
		}
	}
	return points, nil
}

func (o options) clusters(ctx context.Context, env *rival.Env) (points []LoopPoint, err error) {
	for _, workload := range []string{"zipf", "messages"} {
		for n := 1; n <= o.nodes; n++ {
			p, err := o.loop(ctx, env, rival.Twotier("twotier", n, rival.TwoTier), drive.Options{Workload: workload})
			if err != nil {
				return nil, err
			}
			p.Nodes = n
			log.Printf("%s, %d nodes: %8.0f/s, in batches %8.0f/s, service CPU %.1f s/M", workload, n, p.Single, p.Batched,
				p.per(p.Usage.Service*1e6))
			points = append(points, *p)
		}
	}
	return points, nil
}

func (o options) loop(ctx context.Context, env *rival.Env, rv rival.Rival, d drive.Options) (p *LoopPoint, err error) {
	s, err := rv.Start(ctx, env)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	p = &LoopPoint{Name: rv.Name, Workload: d.Workload}
	d.Duration = o.duration
	if err := p.run(ctx, s, d, &p.Single); err != nil {
		return nil, fmt.Errorf("%s: %w", rv.Name, err)
	}
	if _, ok := s.Limiter.(limiter.Batcher); ok {
		d.Batch, d.Workers, d.Seed = 200, 8, 2
		if err := p.run(ctx, s, d, &p.Batched); err != nil {
			return nil, fmt.Errorf("%s: %w", rv.Name, err)
		}
	}
	return p, nil
}

func (p *LoopPoint) run(ctx context.Context, s *rival.Stand, d drive.Options, perSecond *float64) error {
	before, err := measure.Of(ctx, s)
	if err != nil {
		return err
	}
	r, err := drive.Run(ctx, s.Limiter, d)
	if err := errors.Join(err, r.Err(), s.Drain(ctx)); err != nil {
		return err
	}
	after, err := measure.Of(ctx, s)
	*perSecond, p.Decisions, p.Usage = r.PerSecond, r.Decisions, after.Since(before)
	return err
}

func (p *LoopPoint) per(v float64) float64 { return v / float64(max(p.Decisions, 1)) }

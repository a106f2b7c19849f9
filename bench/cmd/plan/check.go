package main

import "twotier/bench/findings"

// Check is a point that was measured beside what the model says of it, in microseconds for each decision.
type Check struct {
	Of       string  `json:"of"`
	Model    float64 `json:"model_us"`
	Measured float64 `json:"measured_us"`
}

const (
	zipfKeys     = 1_000_000
	defaultFlush = 0.2
)

// checks compares with points that the constants were not taken from: Zipf, as fast as it goes, and at every flush
// interval.
func (c *Constants) checks(a findings.All) (all []Check, err error) {
	if r := a.Compare.Result.Row("zipf", "twotier"); r != nil && r.Batched != nil {
		l := r.Batched
		if all, err = c.check(all, "zipf, as fast as it goes", l, defaultFlush); err != nil {
			return nil, err
		}
	}
	points := a.Interval.Result.Points
	for i, p := range points {
		if i == 0 || i == len(points)-1 {
			continue // constants are taken from these
		}
		l := &findings.Loop{Result: p.Load, Usage: p.Usage}
		if all, err = c.check(all, "zipf, flush interval "+milliseconds(p.MS), l, p.MS/1e3); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// check asks the model about a run that began with nothing: the first touch of each key was its first.
func (c *Constants) check(to []Check, of string, l *findings.Loop, flush float64) ([]Check, error) {
	n := float64(max(l.Decisions, 1))
	met, err := different("zipf", zipfKeys, n)
	if err != nil {
		return nil, err
	}
	load := Load{
		Rate: n / l.Seconds, Batched: true, Keys: zipfKeys, PerDecision: 1, Rules: 2, Distribution: "zipf", Flush: flush, New: met / n,
	}
	need, err := c.need(load, Machine{Cores: 1e6, Memory: 1e15, RedisMemory: 1e15, Use: 1})
	if err != nil {
		return nil, err
	}
	return append(to,
		Check{of + ": service", need.ServiceCores / load.Rate * 1e6, l.Per(l.Usage.Service * 1e6)},
		Check{of + ": Redis", need.RedisCores / load.Rate * 1e6, l.Per(l.Usage.Work.CPU * 1e6)}), nil
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"time"

	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/rival"
)

// Control measures message control with hash tags, many messages in a call: the highest rate, with
// users that are new or known, at one node or several. Each run has new servers, and rivals take
// turns.
type Control struct {
	Rivals   []string      `help:"Names of limiters; the first is the reference." default:"${rivals}"`
	Users    uint64        `help:"Receivers to draw from; 0: a new one for each message." default:"${users}"`
	Limits   []string      `help:"given: the limits of message control; ample: limits that are never reached." enum:"given,ample" default:"${limits}"`
	Batch    int           `help:"Messages per call." default:"50"`
	Workers  int           `help:"Concurrent calls." default:"8"`
	Rate     float64       `help:"Messages per second of an open loop; 0: a closed loop." default:"0"`
	Warmup   time.Duration `help:"Time before each measurement, in which users become known." default:"${warmup}"`
	Duration time.Duration `help:"Length of a run." default:"${duration}"`
	Count    int           `help:"Runs of each; the median counts." default:"${count}"`
}

// ControlResult is the result of Control.
type ControlResult struct {
	Runs []*ControlRun `json:"runs"`
}

// ControlRun is one run.
type ControlRun struct {
	Name   string `json:"name"`
	Limits string `json:"limits"`
	rival.Run
}

// Run writes the results so far after every round.
func (o *Control) Run(ctx context.Context, b *bench) error {
	rivals, err1 := rival.Select(rival.All(), o.Rivals)
	env, err2 := b.programs(ctx)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	var r ControlResult
	for round := range o.Count {
		for _, limits := range o.Limits {
			for _, rv := range rivals {
				run, err := o.drive(ctx, env, rv, limits, uint64(round+1))
				if err != nil {
					return fmt.Errorf("%s: %w", rv.Name, err)
				}
				log.Printf("%-18s %-6s %8.0f/s, mean %.2f ms, share %s", rv.Name, limits,
					run.PerSecond, run.Latency.Mean/1e3, formatShare(run.Usage.Share()))
				r.Runs = append(r.Runs, run)
			}
		}
		if err := save(b, o, r); err != nil {
			return err
		}
	}
	return nil
}

// drive starts a rival, drives it once and stops it.
func (o *Control) drive(ctx context.Context, env rival.Env, rv rival.Rival, limits string,
	seed uint64) (run *ControlRun, err error) {
	s, err := rv.Start(ctx, env)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r, err := s.Drive(ctx, drive.Options{
		Workload: "messages", Keys: cmp.Or(o.Users, drive.NewKeys), Seed: seed, Batch: o.Batch,
		Workers: o.Workers, Rate: o.Rate, Ample: limits == "ample", Warmup: o.Warmup,
		Duration: o.Duration,
	})
	if err != nil {
		return nil, err
	}
	return &ControlRun{rv.Name, limits, *r}, nil
}

// ControlRow is the runs of one rival under the same limits.
type ControlRow struct {
	// Run is the median run by messages per second.
	*ControlRun
	// Relative is the rate of messages relative to the first rival's in the same round.
	Relative Spread
}

// Rows returns a row for each rival and limits, in the order in which they took turns.
func (r ControlResult) Rows() (rows []ControlRow) {
	type of struct{ name, limits string }
	for _, id := range distinct(r.Runs, func(c *ControlRun) of { return of{c.Name, c.Limits} }) {
		runs := r.of(id.name, id.limits)
		var relative []float64
		for i, first := range r.of(r.Runs[0].Name, id.limits)[:len(runs)] {
			relative = append(relative, ratio(runs[i].PerSecond, first.PerSecond))
		}
		slices.SortFunc(runs, func(a, b *ControlRun) int {
			return cmp.Compare(a.PerSecond, b.PerSecond)
		})
		rows = append(rows, ControlRow{runs[len(runs)/2], spread(relative)})
	}
	return rows
}

func (r ControlResult) of(name, limits string) (runs []*ControlRun) {
	for _, run := range r.Runs {
		if run.Name == name && run.Limits == limits {
			runs = append(runs, run)
		}
	}
	return runs
}

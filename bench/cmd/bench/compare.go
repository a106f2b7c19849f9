package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/limiter"
	"twotier.dev/twotier/bench/rival"
)

// Compare drives limiters through the same workloads. Each rival is restarted for each row.
type Compare struct {
	Rivals    []string      `help:"Names of limiters; * matches any part; default: all." default:"${rivals}"`
	Workloads []string      `help:"Workloads to run." default:"${workloads}"`
	Rules     []int         `help:"Rules per decision, for workloads without rules." default:"${rules}"`
	Duration  time.Duration `help:"Length of each loop." default:"${duration}"`
	Rate      float64       `help:"Decisions per second of the open loop; 0: no open loop." default:"${rate}"`
	Workers   int           `help:"Concurrent calls." default:"64"`
	Batch     int           `help:"Decisions per batch." default:"200"`
}

// CompareResult is the result of Compare.
type CompareResult struct {
	Batch int          `json:"batch"`
	Rate  float64      `json:"rate"`
	Rows  []CompareRow `json:"rows"`
}

// CompareRow is one rival with one workload.
type CompareRow struct {
	Name     string `json:"name"`
	Title    string `json:"title"`
	Workload string `json:"workload"`
	Rules    int    `json:"rules"`
	// Skipped is the reason why it could not run.
	Skipped string `json:"skipped,omitempty"`
	// Single makes one decision per call and Batched many, both as fast as possible; Open makes
	// single decisions at a fixed rate. Batched is nil if the rival has no batches, Open if there
	// is no rate.
	Single  *rival.Run `json:"single,omitempty"`
	Batched *rival.Run `json:"batched,omitempty"`
	Open    *rival.Run `json:"open,omitempty"`
	// Memory is the memory that all loops together have left in use.
	Memory rival.Footprint `json:"memory"`
}

// Run writes the results so far after every workload, so that an interrupted run is not lost. A
// rival that fails does not stop the others.
func (o *Compare) Run(ctx context.Context, b *bench) error {
	rivals, err1 := rival.Select(rival.All(), o.Rivals)
	env, err2 := b.programs(ctx)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	r := CompareResult{Batch: o.Batch, Rate: o.Rate}
	var failed []error
	for _, workload := range o.Workloads {
		rows, err := o.rows(ctx, env, rivals, workload)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		failed = append(failed, err)
		r.Rows = append(r.Rows, rows...)
		if err := save(b, o, r); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

// rows measures every rival with one workload.
func (o *Compare) rows(ctx context.Context, env rival.Env, rivals []rival.Rival,
	workload string) (rows []CompareRow, failed error) {
	for _, rules := range o.Rules {
		for _, rv := range rivals {
			row := CompareRow{Name: rv.Name, Title: rv.Name, Workload: workload, Rules: rules}
			err := o.measure(ctx, env, rv, &row)
			if err != nil {
				row.Skipped = err.Error()
			}
			if err != nil && !errors.Is(err, limiter.ErrNotAvailable) {
				failed = errors.Join(failed, fmt.Errorf("%s, %s: %w", workload, rv.Name, err))
			}
			log.Print(row.progress())
			rows = append(rows, row)
		}
	}
	return rows, failed
}

// measure starts a rival and drives it.
func (o *Compare) measure(ctx context.Context, env rival.Env, rv rival.Rival,
	row *CompareRow) (err error) {
	s, err := rv.Start(ctx, env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	row.Title = s.Name()
	before, err := s.Footprint(ctx)
	if err != nil {
		return err
	}
	if err := o.drive(ctx, s, row); err != nil {
		return err
	}
	after, err := s.Footprint(ctx)
	row.Memory = after.Since(before)
	for _, r := range []*rival.Run{row.Single, row.Batched, row.Open} {
		if r != nil && row.Workload == "distinct" {
			row.Memory.Keys += r.Decisions
		}
	}
	return err
}

// drive runs the loops of a row. Each has a different seed, and so different distinct keys.
func (o *Compare) drive(ctx context.Context, s *rival.Stand, row *CompareRow) (err error) {
	loop := drive.Options{Workload: row.Workload, Rules: row.Rules, Workers: o.Workers,
		Duration: o.Duration}
	if row.Workload != "hot" {
		loop.MaxCalls = s.Rival.MaxKeys / 3
	}
	if row.Single, err = s.Drive(ctx, loop); err != nil {
		return err
	}
	if !s.Rival.OneByOne {
		batched := loop
		batched.Batch, batched.Workers, batched.Seed = o.Batch, 8, 2
		if row.Batched, err = s.Drive(ctx, batched); err != nil {
			return err
		}
	}
	if o.Rate > 0 {
		loop.Rate, loop.Seed = o.Rate, 3
		row.Open, err = s.Drive(ctx, loop)
	}
	return err
}

func (r CompareRow) progress() string {
	return fmt.Sprintf("%-10s %-24s %9.0f/s one by one, %9.0f/s at best %s", r.Workload, r.Title,
		r.Single.Lasting(), r.Best().Lasting(), r.Skipped)
}

// Best returns the run with the least work for Redis: in batches, if the rival has them. It returns
// an empty run if nothing was measured.
func (r CompareRow) Best() *rival.Run { return cmp.Or(r.Batched, r.Single, &rival.Run{}) }

// Of returns the rows of a workload.
func (r CompareResult) Of(workload string) (rows []CompareRow) {
	for _, row := range r.Rows {
		if row.Workload == workload {
			rows = append(rows, row)
		}
	}
	return rows
}

// Row returns the row of a rival with a workload, without runs if it was not measured.
func (r CompareResult) Row(workload, name string) CompareRow {
	for _, row := range r.Of(workload) {
		if row.Name == name && row.Skipped == "" {
			return row
		}
	}
	return CompareRow{}
}

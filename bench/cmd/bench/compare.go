package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/limiter"
	"twotier.dev/twotier/bench/rival"
)

// Compare drives every limiter through the same workloads. Each rival is restarted for each
// workload.
type Compare struct {
	Rivals    []string      `help:"Names, which may have a * in them; all if there are none."`
	Workloads []string      `help:"Names." default:"hot,zipf,distinct,diurnal"`
	Duration  time.Duration `help:"Of each of the three loops of a row." default:"2s"`
	Rate      float64       `help:"Decisions per second of the open loop." default:"5000"`
	Workers   int           `help:"Calls under way at a time." default:"64"`
	Batch     int           `help:"Decisions of a batch." default:"200"`
}

// CompareResult is the result of Compare.
type CompareResult struct {
	Workers  int          `json:"workers"`
	Batch    int          `json:"batch"`
	Rate     float64      `json:"rate"`
	Duration string       `json:"duration"`
	Rows     []CompareRow `json:"rows"`
}

// CompareRow is one rival with one workload.
type CompareRow struct {
	Name     string `json:"name"`
	Title    string `json:"title"`
	Workload string `json:"workload"`
	// Skipped says why it could not run.
	Skipped string `json:"skipped,omitempty"`
	// Single asks for one decision per call and Batched for many, both as fast as possible; Open
	// asks for single decisions at a fixed rate. Batched is nil if the rival has no batches.
	Single  *Run `json:"single,omitempty"`
	Batched *Run `json:"batched,omitempty"`
	Open    *Run `json:"open,omitempty"`
	// Memory is what all loops together have left in memory.
	Memory rival.Footprint `json:"memory"`
}

// Run writes the results so far after every workload, so that an interrupted run is not lost. A
// rival that fails does not stop the others.
func (o *Compare) Run(ctx context.Context, b *bench) error {
	rivals, err := rival.Select(rival.All(), o.Rivals)
	if err != nil {
		return err
	}
	env, err := b.programs(ctx)
	if err != nil {
		return err
	}
	r := CompareResult{Batch: o.Batch, Rate: o.Rate, Workers: o.Workers,
		Duration: o.Duration.String()}
	var failed []error
	for _, workload := range o.Workloads {
		for _, rv := range rivals {
			row, err := o.row(ctx, env, rv, workload)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil && !errors.Is(err, limiter.ErrNotAvailable) {
				err = fmt.Errorf("%s, %s: %w", workload, rv.Name, err)
				failed = append(failed, err)
			}
			if err != nil {
				row = &CompareRow{Name: rv.Name, Title: rv.Name, Workload: workload,
					Skipped: err.Error()}
			}
			log.Print(row.progress())
			r.Rows = append(r.Rows, *row)
		}
		if err := save(b, "compare", drive.Workloads(), r); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

// row starts a rival and drives it.
func (o *Compare) row(ctx context.Context, env rival.Env, rv rival.Rival,
	workload string) (row *CompareRow, err error) {
	s, err := rv.Start(ctx, env)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	row = &CompareRow{Name: rv.Name, Title: s.Name(), Workload: workload}
	before, err := s.Footprint(ctx)
	if err != nil {
		return nil, err
	}
	loop := drive.Options{Workload: workload, Workers: o.Workers, Duration: o.Duration}
	if workload != "hot" {
		loop.MaxCalls = rv.MaxKeys / 3
	}
	if row.Single, row.Batched, err = closed(ctx, s, loop, o.Batch); err != nil {
		return nil, err
	}
	loop.Rate, loop.Seed = o.Rate, 3
	if row.Open, err = measure(ctx, s, loop); err != nil {
		return nil, err
	}
	after, err := s.Footprint(ctx)
	row.Memory = after.Since(before)
	for _, r := range []*Run{row.Single, row.Batched, row.Open} {
		if r != nil && workload == "distinct" {
			row.Memory.Keys += r.Decisions
		}
	}
	return row, err
}

func (r *CompareRow) progress() string {
	if r.Skipped != "" {
		return fmt.Sprintf("%-10s %-24s skipped: %s", r.Workload, r.Title, r.Skipped)
	}
	line := fmt.Sprintf("%-10s %-24s %9.0f/s", r.Workload, r.Name, r.Single.PerSecond)
	if r.Batched != nil {
		line += fmt.Sprintf(", in batches %9.0f/s", r.Batched.PerSecond)
	}
	return line + fmt.Sprintf(", at %.0f/s p99 %d µs", r.Open.Options.Rate, r.Open.Latency.P99)
}

// BytesPerKey returns the bytes per key of the service, those that twotier accounts for, and those
// of Redis.
func (r *CompareRow) BytesPerKey() []float64 {
	var per []float64
	for _, v := range []int64{r.Memory.Service, r.Memory.Counted, r.Memory.Redis} {
		per = append(per, float64(max(v, 0))/float64(max(r.Memory.Keys, 1)))
	}
	return per
}

// Of returns the rows of a workload.
func (r CompareResult) Of(workload string) (rows []CompareRow) {
	for _, row := range r.Rows {
		if row.Workload == workload {
			rows = append(rows, row)
		}
	}
	return rows
}

// Row returns the row of a rival with a workload, or nil if it was not measured.
func (r CompareResult) Row(workload, name string) *CompareRow {
	for i, row := range r.Rows {
		if row.Workload == workload && row.Name == name && row.Skipped == "" {
			return &r.Rows[i]
		}
	}
	return nil
}

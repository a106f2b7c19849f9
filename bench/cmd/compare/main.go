package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"runtime/pprof"
	"strings"
	"time"

	"twotier/bench/findings"
	"twotier/bench/gubernator"
	"twotier/bench/limiter"
	"twotier/bench/proc"
	"twotier/bench/report"
	"twotier/bench/rival"
)

type options struct {
	rivals, workloads string
	duration          time.Duration
	rate              float64
	workers, batch    int
	profile           string
	out               string
}

func main() {
	var o options
	flag.StringVar(&o.rivals, "rivals", "", "`names` with commas, which may end in *: "+strings.Join(rival.Names(all()), ", "))
	flag.StringVar(&o.workloads, "workloads", "hot,zipf,distinct,diurnal", "`names` with commas")
	flag.DurationVar(&o.duration, "duration", 2*time.Second, "of each of the three loops of a rival with a workload")
	flag.Float64Var(&o.rate, "rate", 5000, "decisions per second of the open loop")
	flag.IntVar(&o.workers, "workers", 64, "calls under way at a time")
	flag.IntVar(&o.batch, "batch", 200, "decisions of a batch")
	flag.StringVar(&o.profile, "cpuprofile", "", "`file` for a profile of this process, which runs what is a library")
	flag.StringVar(&o.out, "out", "results", "`directory` of the results")
	proc.Main(func(ctx context.Context) error {
		return profiled(o.profile, func() error { return run(ctx, o) })
	})
}

// profiled writes a profile of the processor's time in fn, if there is a path.
func profiled(path string, fn func() error) error {
	if path == "" {
		return fn()
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return errors.Join(fmt.Errorf("profile: %w", err), file.Close())
	}
	err = fn()
	pprof.StopCPUProfile()
	return errors.Join(err, file.Close())
}

func all() []rival.Rival { return rival.All(gubernator.Rivals()...) }

// run writes what there is after every rival: a run that is cut short is not lost.
func run(ctx context.Context, o options) (err error) {
	rivals, err := rival.Select(all(), o.rivals)
	if err != nil {
		return err
	}
	env, remove, err := rival.Build(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	r := Result{Batch: o.batch, Rate: o.rate, Workers: o.workers, Duration: o.duration.String()}
	var failed []error
	for workload := range strings.SplitSeq(o.workloads, ",") {
		for _, rv := range rivals {
			row, err := o.measure(ctx, env, rv, workload)
			switch {
			case errors.Is(err, limiter.ErrNotAvailable):
				row = &Row{findings.CompareRow{Name: rv.Name, Title: rv.Name, Workload: workload, Skipped: err.Error()}}
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				// The others can be compared all the same.
				err = fmt.Errorf("%s, %s: %w", workload, rv.Name, err)
				failed = append(failed, err)
				row = &Row{findings.CompareRow{Name: rv.Name, Title: rv.Name, Workload: workload, Skipped: "failed: " + err.Error()}}
			}
			log.Print(row.progress())
			r.Rows = append(r.Rows, *row)
		}
		if err := r.write(ctx, o); err != nil {
			return err
		}
	}
	fmt.Print(r.markdown())
	return errors.Join(failed...)
}

func (r *Result) write(ctx context.Context, o options) error {
	return report.Report{
		Name: "compare", Title: "Side by side",
		Command: fmt.Sprintf("go run ./cmd/compare -rivals '%s' -workloads %s -duration %v -rate %.0f -workers %d -batch %d",
			o.rivals, o.workloads, o.duration, o.rate, o.workers, o.batch),
		Data: r, Body: r.markdown(),
	}.Write(ctx, o.out)
}

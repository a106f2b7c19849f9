package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"twotier/bench/gubernator"
	"twotier/bench/limiter"
	"twotier/bench/proc"
	"twotier/bench/report"
	"twotier/bench/rival"
	"twotier/bench/trace"
)

// twotier takes events that are at most a day old, and a replay takes a while.
const margin = 10 * time.Minute

type options struct {
	receivers int
	seed      uint64
	rivals    string
	live      time.Duration
	out       string
}

func main() {
	var o options
	flag.IntVar(&o.receivers, "receivers", 400, "number of `receivers`; each gets about 100 messages a day")
	flag.Uint64Var(&o.seed, "seed", 1, "of the traces")
	flag.StringVar(&o.rivals, "rivals", "twotier,twotier-redis-mode,twotier-lib,zset*,hash*,stream-lua,incr-lua,redis-rate,sentinel,gub*",
		"`names` with commas; those with a clock of their own are judged live only")
	flag.DurationVar(&o.live, "live", 20*time.Second, "length of the live trace")
	flag.StringVar(&o.out, "out", "results", "`directory` of the results")
	proc.Main(func(ctx context.Context) error { return run(ctx, o) })
}

func run(ctx context.Context, o options) (err error) {
	f, err := startField(ctx, o.rivals)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	// To is in the past for the whole replay: a limiter may refuse what lies in the future.
	now := time.Now()
	m := trace.Messages{Seed: o.seed, Receivers: o.receivers, From: now.Add(margin - 24*time.Hour).UnixMilli(), To: now.UnixMilli()}
	r := Result{Seed: o.seed, Receivers: o.receivers, Hours: (24*time.Hour - margin).Hours(), Missing: f.missing}
	if err := r.play(ctx, f.timed, m.Events(), now); err != nil {
		return err
	}
	if r.Live, err = playLive(ctx, f.all, o.seed, o.live); err != nil {
		return err
	}
	fmt.Print(r.markdown())
	return report.Report{
		Name: "decisions", Title: "Who may pass: decisions compared",
		Command: fmt.Sprintf("go run ./cmd/decisions -seed %d -receivers %d -live %v -rivals '%s'", o.seed, o.receivers, o.live, o.rivals),
		Data:    r, Body: r.markdown(),
	}.Write(ctx, o.out)
}

// field is what is compared.
type field struct {
	// timed take the time of an event as it is given, the judge first; all are those and the others.
	timed, all []limiter.Limiter
	missing    []string
	closers    []func() error
}

// startField starts the rivals.
func startField(ctx context.Context, names string) (*field, error) {
	rivals, err := rival.Select(rival.All(gubernator.Rivals()...), names)
	if err != nil {
		return nil, err
	}
	env, remove, err := rival.Build(ctx)
	if err != nil {
		return nil, err
	}
	f := &field{timed: []limiter.Limiter{&limiter.Exact{}}, all: []limiter.Limiter{&limiter.Exact{}}, closers: []func() error{remove}}
	for _, rv := range rivals {
		s, err := rv.Start(ctx, env)
		switch {
		case errors.Is(err, limiter.ErrNotAvailable):
			f.missing = append(f.missing, err.Error())
			continue
		case err != nil:
			return nil, errors.Join(err, f.close())
		}
		f.closers = append(f.closers, s.Close)
		f.all = append(f.all, s.Limiter)
		if !rv.Own {
			f.timed = append(f.timed, s.Limiter)
		}
	}
	return f, nil
}

func (f *field) close() error {
	var errs []error
	for _, c := range f.closers {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

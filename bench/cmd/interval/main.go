package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"strings"
	"time"

	"twotier/bench/report"
	"twotier/bench/rival"
)

type options struct {
	intervals        []time.Duration
	rate             float64
	steady, duration time.Duration
	samples          int
	out              string
}

func main() {
	o := options{intervals: []time.Duration{10 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond, time.Second}}
	flag.Float64Var(&o.rate, "rate", 50_000, "decisions per second, and adds of the steady stream")
	flag.DurationVar(&o.steady, "steady", 20*time.Second, "length of the stream of distinct keys")
	flag.DurationVar(&o.duration, "duration", 5*time.Second, "of the load at each interval")
	flag.IntVar(&o.samples, "samples", 40, "`adds` whose way to Redis is timed at each interval")
	flag.StringVar(&o.out, "out", "results", "`directory` of the results")
	flag.Func("intervals", "`durations` with commas (default 10ms,50ms,200ms,1s)", func(list string) error {
		o.intervals = nil
		for text := range strings.SplitSeq(list, ",") {
			d, err := time.ParseDuration(text)
			if err != nil {
				return err
			}
			o.intervals = append(o.intervals, d)
		}
		return nil
	})
	rival.Main(func(ctx context.Context, env *rival.Env) error { return run(ctx, env, o) })
}

func run(ctx context.Context, env *rival.Env, o options) (err error) {
	var r Result
	for _, interval := range o.intervals {
		p, err := o.point(ctx, env, interval)
		if err != nil {
			return fmt.Errorf("flush interval %v: %w", interval, err)
		}
		log.Print(p.progress())
		r.Points = append(r.Points, *p)
	}
	if r.Steady, err = steady(ctx, env, o.rate, o.steady); err != nil {
		return err
	}
	body := r.markdown(o)
	fmt.Print(body)
	if err := (report.Report{
		Name: "interval", Title: "What the flush interval trades",
		Command: fmt.Sprintf("go run ./cmd/interval -rate %.0f -steady %v -duration %v -samples %d", o.rate, o.steady, o.duration, o.samples),
		Data:    r, Body: body,
	}).Write(ctx, o.out); err != nil {
		return err
	}
	if !r.Steady.Bounded {
		return fmt.Errorf("%d buckets were pending, more than the bound of %d", r.Steady.MaxPending, r.Steady.Bound)
	}
	return nil
}

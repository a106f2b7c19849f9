package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"twotier/bench/load"
	"twotier/bench/report"
)

type options struct {
	rate     float64
	duration time.Duration
	events   int
	out      string
}

func main() {
	var o options
	flag.Float64Var(&o.rate, "rate", 100_000, "`adds` per second")
	flag.DurationVar(&o.duration, "duration", time.Minute, "of the stream of distinct keys")
	flag.IntVar(&o.events, "events", 300_000, "length of the traces, a multiple of 500")
	flag.StringVar(&o.out, "out", "results", "`directory` of the results")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, o options) error {
	var r Result
	var err error
	if r.Distinct, err = distinct(ctx, o.rate, o.duration); err != nil {
		return err
	}
	for _, name := range []string{"uniform", "zipf"} {
		if err := r.compare(ctx, o, name); err != nil {
			return err
		}
	}
	body := r.markdown(o)
	fmt.Print(body)
	if err := (report.Report{
		Name: "redis-work", Title: "What counting costs Redis",
		Command: fmt.Sprintf("go run ./cmd/flush -rate %.0f -duration %v -events %d", o.rate, o.duration, o.events),
		Data:    r, Body: body,
	}).Write(ctx, o.out); err != nil {
		return err
	}
	if !r.Distinct.Bounded {
		return fmt.Errorf("%d buckets were pending, more than the bound of %d", r.Distinct.MaxPending, r.Distinct.Bound)
	}
	return nil
}

// compare has everybody count one trace.
func (r *Result) compare(ctx context.Context, o options, name string) error {
	all, err := events(name, o.events)
	if err != nil {
		return err
	}
	for _, op := range []string{load.OpBatch, load.OpBatchAcquire} {
		row, err := twotier(ctx, op, name, all, o.rate)
		if err != nil {
			return err
		}
		r.Rows = append(r.Rows, row)
	}
	rows, missing, err := rivals(ctx, name, all)
	if err != nil {
		return err
	}
	r.Rows = append(r.Rows, rows...)
	r.Missing = nil
	for _, m := range missing {
		r.Missing = append(r.Missing, m.Error())
	}
	return nil
}

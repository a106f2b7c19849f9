package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"time"

	"twotier/bench/load"
	"twotier/bench/proc"
	"twotier/bench/report"
)

type options struct {
	rounds   int
	duration time.Duration
	conns    int
	out      string
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 10, "`pairs` of rounds")
	flag.DurationVar(&o.duration, "duration", 5*time.Second, "of one round, in whole seconds")
	flag.IntVar(&o.conns, "conns", 64, "`connections`")
	flag.StringVar(&o.out, "out", "results", "`directory` of the results")
	proc.Main(func(ctx context.Context) error { return run(ctx, o) })
}

func run(ctx context.Context, o options) error {
	r := Result{Rounds: o.rounds, Duration: o.duration.String(), Conns: o.conns}
	for _, withRedis := range []bool{false, true} {
		if err := r.measure(ctx, o, withRedis); err != nil {
			return err
		}
	}
	body := r.markdown()
	fmt.Print(body)
	return report.Report{
		Name: "http", Title: "POST /v1/add against doing nothing",
		Command: fmt.Sprintf("go run ./cmd/http -rounds %d -duration %v -conns %d", o.rounds, o.duration, o.conns),
		Data:    r, Body: body,
	}.Write(ctx, o.out)
}

// measure starts a server of either kind and compares them; with Redis, twotier also writes everything that it counts
// to a Redis on the same cores.
func (r *Result) measure(ctx context.Context, o options, withRedis bool) (err error) {
	var flags []string
	store := "no Redis"
	if withRedis {
		redis, startErr := proc.StartRedis(ctx)
		if startErr != nil {
			return startErr
		}
		defer func() { err = errors.Join(err, redis.Stop()) }()
		flags, store = []string{"--redis", "redis://" + redis.Addr}, "flushing to Redis"
	}
	twotier, err := proc.StartTwotier(ctx, flags...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, twotier.Stop()) }()
	nop, err := startNop(ctx, twotier.Addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nop.Stop()) }()
	for _, g := range generators() {
		for _, space := range []uint64{1_000, 50_000} {
			c := Comparison{Generator: g.name, Store: store, Space: space}
			if err := c.alternate(ctx, o, g, twotier.Addr, nop.Addr); err != nil {
				return err
			}
			r.Comparisons = append(r.Comparisons, c)
		}
	}
	for _, space := range []uint64{1_000, 50_000, 1_000_000} {
		if err := r.batches(ctx, o, twotier.Addr, store, space); err != nil {
			return err
		}
	}
	if !withRedis {
		return nil
	}
	// A closed loop leaves more behind than twotier waits for when it is stopped.
	return twotier.Await(ctx, "twotier_pending_buckets", func(v float64) bool { return v == 0 })
}

type generator struct {
	name string
	run  func(context.Context, load.Options) (load.Result, error)
}

func generators() []generator {
	all := []generator{{"own", load.Run}}
	if load.HaveWrk() {
		return append([]generator{{"wrk", load.RunWrk}}, all...)
	}
	log.Print("there is no wrk; the own generator measures alone")
	return all
}

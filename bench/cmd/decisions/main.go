package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"twotier/bench/limiter"
	"twotier/bench/proc"
	"twotier/bench/report"
	"twotier/bench/trace"
)

// twotier takes events that are at most a day old, and a replay takes a while.
const margin = 10 * time.Minute

func main() {
	receivers := flag.Int("receivers", 400, "number of `receivers`; each gets about 100 messages a day")
	seed := flag.Uint64("seed", 1, "of the trace")
	out := flag.String("out", "results", "`directory` of the results")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *seed, *receivers, *out); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, seed uint64, receivers int, out string) (err error) {
	field, missing, closeAll, err := limiters(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	// To is in the past for the whole replay: a limiter may refuse what lies in the future.
	now := time.Now()
	m := trace.Messages{Seed: seed, Receivers: receivers, From: now.Add(margin - 24*time.Hour).UnixMilli(), To: now.UnixMilli()}
	r := Result{Seed: seed, Receivers: receivers, Hours: (24*time.Hour - margin).Hours()}
	for _, e := range missing {
		r.Missing = append(r.Missing, e.Error())
	}
	if err := r.play(ctx, field, m.Events(), now); err != nil {
		return err
	}
	fmt.Print(r.markdown())
	return report.Report{
		Name: "decisions", Title: "Who may pass: decisions compared",
		Command: fmt.Sprintf("go run ./cmd/decisions -seed %d -receivers %d", seed, receivers),
		Data:    r, Body: r.markdown(),
	}.Write(ctx, out)
}

// limiters starts twotier and Redis. The judge comes first, twotier second.
func limiters(ctx context.Context) (field []limiter.Limiter, missing []error, closeAll func() error, err error) {
	server, err := proc.StartTwotier(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	redis, err := proc.StartRedis(ctx)
	if err != nil {
		return nil, nil, nil, errors.Join(err, server.Stop())
	}
	rdb := limiter.Connect(redis.Addr, 2)
	closeAll = func() error { return errors.Join(rdb.Close(), server.Stop(), redis.Stop()) }
	rivals, missing, err := limiter.Rivals(ctx, rdb)
	if err != nil {
		return nil, nil, nil, errors.Join(err, closeAll())
	}
	field = []limiter.Limiter{&limiter.Exact{}, limiter.NewHTTP(server.Base)}
	for _, r := range rivals {
		field = append(field, r)
	}
	return field, missing, closeAll, nil
}

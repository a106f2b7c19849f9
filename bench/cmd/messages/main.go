package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"twotier/bench/gubernator"
	"twotier/bench/limiter"
	"twotier/bench/proc"
	"twotier/bench/report"
	"twotier/bench/rival"
)

type options struct {
	rivals      string
	users       uint64
	probe, hold time.Duration
	target      float64
	bound       time.Duration
	workers     int
	batch       int
	atTarget    time.Duration
	out         string
}

func main() {
	var o options
	flag.StringVar(&o.rivals, "rivals", "hash-lua,gubernator-1,twotier-lib,twotier", "`names` with commas")
	flag.Uint64Var(&o.users, "users", 10_000_000, "receivers to draw from")
	flag.DurationVar(&o.probe, "probe", 4*time.Second, "length of one step of the search")
	flag.DurationVar(&o.hold, "hold", 60*time.Second, "length of the run at the rate that was found")
	flag.DurationVar(&o.atTarget, "at-target", 60*time.Second, "length of the run at the target")
	flag.Float64Var(&o.target, "target", 100_000, "`messages` per second that the scenario asks for")
	flag.DurationVar(&o.bound, "bound", 5*time.Millisecond, "of the 99th percentile")
	flag.IntVar(&o.workers, "workers", 128, "calls under way at a time")
	flag.IntVar(&o.batch, "batch", 50, "messages of a call, where there are such calls, beside one of each")
	flag.StringVar(&o.out, "out", "results", "`directory` of the results")
	proc.Main(func(ctx context.Context) error { return run(ctx, o) })
}

func run(ctx context.Context, o options) (err error) {
	rivals, err := rival.Select(rival.All(gubernator.Rivals()...), o.rivals)
	if err != nil {
		return err
	}
	env, remove, err := rival.Build(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	r := Result{Users: o.users, BoundMS: float64(o.bound) / float64(time.Millisecond), Target: o.target}
	for _, rv := range rivals {
		for _, batch := range []int{1, o.batch} {
			s, err := o.search(ctx, env, rv, batch)
			if errors.Is(err, limiter.ErrNotAvailable) || errors.Is(err, errOneByOne) {
				continue
			}
			if err != nil {
				return fmt.Errorf("%s: %w", rv.Name, err)
			}
			r.Searches = append(r.Searches, *s)
		}
		if err := r.write(ctx, o); err != nil {
			return err
		}
	}
	fmt.Print(r.markdown(o))
	return nil
}

func (r *Result) write(ctx context.Context, o options) error {
	return report.Report{
		Name: "messages", Title: "Message control at the highest rate",
		Command: fmt.Sprintf("go run ./cmd/messages -rivals '%s' -users %d -probe %v -hold %v -at-target %v -target %.0f -bound %v -workers %d -batch %d",
			o.rivals, o.users, o.probe, o.hold, o.atTarget, o.target, o.bound, o.workers, o.batch),
		Data: r, Body: r.markdown(o),
	}.Write(ctx, o.out)
}

// Result is what is written.
type Result struct {
	Users    uint64   `json:"users"`
	BoundMS  float64  `json:"p99_bound_ms"`
	Target   float64  `json:"target_per_second"`
	Searches []Search `json:"searches"`
}

const text = `Every message has to hold to four rules at once: 15 in any minute and 50 in any 24 hours for its receiver, 2 in any 59
seconds and 5 in any 59 minutes for its receiver and content. Receivers are drawn evenly from %d, so nearly every message
meets a key that is not in memory. Messages come in an open loop, each in a call of its own or %d in one; latencies are of a
call, measured from when it was due. *Highest* is the largest rate found, in steps of %v, at which the 99th percentile stays
below %v, no more than one message in a hundred is left unsent at the end, and Redis has everything %v later; *held* is what came of %v at that rate,
and *at target* of %v at %.0f a second (a quarter of both for what is not twotier); *drained* is how much later Redis had everything. Generator, server and Redis share the machine.

`

func (r *Result) markdown(o options) string {
	var b strings.Builder
	fmt.Fprintf(&b, text, r.Users, o.batch, o.probe, o.bound, mostDrain, o.hold, o.atTarget, o.target)
	head := []string{"limiter", "messages a call", "highest/s", "held/s", "mean ms", "p50", "p99", "p99.9", "drained s", "at target/s", "mean ms", "p99", "drained s"}
	var rows [][]string
	for _, s := range r.Searches {
		h, t := s.Held.Latency, s.AtTarget.Latency
		ms := func(us int64) float64 { return float64(us) / 1e3 }
		rows = append(rows, report.Cells("%s|%d|%.0f|%.0f|%.2f|%.2f|%.2f|%.2f|%.2f|%.0f|%.2f|%.2f|%.2f", s.Title, s.Batch, s.Highest,
			s.Held.PerSecond, h.Mean/1e3, ms(h.P50), ms(h.P99), ms(h.P999), s.HeldDrain,
			s.AtTarget.PerSecond, t.Mean/1e3, ms(t.P99), s.TargetDrain))
	}
	b.WriteString(report.Table(head, rows))
	return b.String()
}

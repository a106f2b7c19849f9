package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/load"
)

func benchSpec() spec {
	return spec{
		name: "bench", args: "[--op add|acquire|batch] [--rate R] [flags]",
		summary: "put a server under load and measure it",
		details: "Without --rate it sends as fast as the connections allow (a closed loop, to " +
			"measure throughput). With --rate it sends that many operations per second whether " +
			"the server keeps up or not (an open loop, to measure latencies: a request that has " +
			"to wait for a connection counts from when it was due). Progress goes to stderr, the " +
			"result to stdout. Keys start with \"bench:\". --timeout applies to each request. " +
			"Interrupt it for the result so far.",
		examples: "twotier bench\n" +
			"twotier bench --op acquire --dist zipf --rate 20000 --duration 30s\n" +
			"twotier bench --op batch --batch 1000 --connections 4 --json > result.json",
		bind: func(fs *pflag.FlagSet) runner {
			var (
				o     load.Options
				rules limits
			)
			fs.StringVar(&o.Op, "op", "add", "`WHAT` to send: add, acquire or batch (of adds)")
			fs.StringVar(&o.NS, "ns", "", "`NAMESPACE` of the keys")
			fs.Var(&rules, "limit",
				"`MAX/WINDOW` of an acquire; may be repeated (default 15/1m and 50/24h)")
			fs.IntVar(&o.Keys, "keys", 100_000, "`NUMBER` of different keys")
			fs.StringVar(&o.Dist, "dist", "uniform",
				"`HOW` keys are drawn: uniform, zipf, same or distinct")
			// Both flags exist.
			_ = fs.SetAnnotation("op", config.ChoicesAnnotation, load.Ops())
			_ = fs.SetAnnotation("dist", config.ChoicesAnnotation, load.Dists())
			fs.IntVar(&o.Connections, "connections", 50, "`NUMBER` of connections")
			fs.DurationVar(&o.Duration, "duration", 10*time.Second, "`TIME` to run")
			fs.Float64Var(&o.Rate, "rate", 0,
				"`NUMBER` of operations per second over all connections")
			fs.IntVar(&o.Batch, "batch", 1000, "`NUMBER` of operations in a batch")
			fs.Uint64Var(&o.Seed, "seed", 1, "`NUMBER` that the keys drawn depend on")
			return func(ctx context.Context, s *session, args []string) error {
				if err := cmp.Or(noArgs(args), checkBench(o)); err != nil {
					return err
				}
				if len(rules) > 0 {
					text, err := json.Marshal(rules)
					if err != nil {
						return err
					}
					o.Limits = string(text)
				}
				return s.bench(ctx, o)
			}
		},
	}
}

// checkBench refuses values that package load would refuse or replace by a default, so that the
// error names the flag.
func checkBench(o load.Options) error {
	switch {
	case !slices.Contains(load.Ops(), o.Op):
		return usagef("--op: %q is not one of %s", o.Op, strings.Join(load.Ops(), ", "))
	case !slices.Contains(load.Dists(), o.Dist):
		return usagef("--dist: %q is not one of %s", o.Dist, strings.Join(load.Dists(), ", "))
	case o.Keys < 1:
		return usagef("--keys: %d is less than 1", o.Keys)
	case o.Connections < 1 || o.Connections > 10_000:
		return usagef("--connections: %d is not 1 to 10000", o.Connections)
	case o.Batch < 1 || o.Batch > 10_000:
		return usagef("--batch: %d is not 1 to 10000", o.Batch)
	case o.Duration <= 0:
		return usagef("--duration: %s is not more than 0", o.Duration)
	case !(o.Rate >= 0 && o.Rate <= 1e9):
		return usagef("--rate: %g is not 0 to 1e9", o.Rate)
	}
	return nil
}

func (s *session) bench(ctx context.Context, o load.Options) error {
	// Try one request first: if the server can't be reached, one clear error is better than
	// thousands of failures.
	if _, err := s.client.do(ctx, http.MethodGet, "/healthz", nil, nil); err != nil {
		return err
	}
	o.URL, o.Timeout, o.Token, o.TLS = s.client.base.String(), s.client.timeout, s.client.token,
		s.client.tls
	o.Progress = func(p load.Progress) {
		fmt.Fprintf(s.Stderr, "%4.0fs %9.0f op/s   p50 %8s   p99 %8s   max %8s   %d errors\n",
			p.Elapsed.Seconds(), p.OpsPerSecond,
			micros(p.Latency.P50), micros(p.Latency.P99), micros(p.Latency.Max), p.Errors)
	}
	result, err := load.Run(ctx, o)
	if err != nil {
		return err
	}
	if s.json {
		err = json.NewEncoder(s.Stdout).Encode(result)
	} else {
		err = s.printBench(result)
	}
	if err == nil && result.Requests == 0 {
		err = errors.New("no request succeeded")
	}
	return err
}

// micros formats microseconds as a duration with about three digits.
func micros(us int64) string {
	d := time.Duration(us) * time.Microsecond
	switch {
	case d >= 10*time.Second:
		d = d.Round(100 * time.Millisecond)
	case d >= time.Second:
		d = d.Round(10 * time.Millisecond)
	case d >= 10*time.Millisecond:
		d = d.Round(100 * time.Microsecond)
	case d >= time.Millisecond:
		d = d.Round(10 * time.Microsecond)
	}
	return config.FormatDuration(d)
}

func (s *session) printBench(r load.Result) error {
	fmt.Fprintf(s.Stdout, "%d operations in %.1fs: %.0f op/s (%s, %s, %d connections)\n",
		r.Operations, r.Seconds, r.OpsPerSecond, r.Op, r.Dist, r.Connections)
	if r.Op == "acquire" {
		fmt.Fprintf(s.Stdout, "%d allowed, %d refused\n", r.Allowed, r.Refused)
	}
	t := table{left: 1, rows: [][]string{{"LATENCY", "MEAN", "P50", "P90", "P99", "P99.9", "MAX"}}}
	add := func(name string, l load.Latency) {
		t.add(name, micros(int64(l.Mean)), micros(l.P50), micros(l.P90), micros(l.P99),
			micros(l.P999), micros(l.Max))
	}
	if r.Rate > 0 {
		add("since due", r.Latency)
	}
	add("since sent", r.Service)
	if err := t.print(s.Stdout); err != nil {
		return err
	}
	for _, reason := range slices.Sorted(maps.Keys(r.Errors)) {
		fmt.Fprintf(s.Stdout, "%d errors: %s\n", r.Errors[reason], reason)
	}
	if r.Unsent > 0 {
		fmt.Fprintf(s.Stdout, "the server did not keep up: %d requests were due but not sent\n",
			r.Unsent)
	}
	return nil
}

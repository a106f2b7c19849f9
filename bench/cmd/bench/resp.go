package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"log"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"twotier.dev/twotier/bench/limiter"
	"twotier.dev/twotier/bench/rival"
)

// Resp drives twotier's commands for Redis clients with redis-benchmark, in turns with the Hash
// limiter as a script in Redis, with INCR on the same Redis, and with a command that does nothing.
type Resp struct {
	Clients   int   `help:"Connections." default:"500"`
	Requests  int   `help:"Requests per run." default:"1000000"`
	Keys      int   `help:"Keys to draw from." default:"500000"`
	Pipelines []int `help:"Commands in flight per connection, one run for each number." default:"1,16"`
	Threads   int   `help:"Threads of redis-benchmark; 0: its default." default:"0"`
	Count     int   `help:"Runs of each; the median counts." default:"3"`
	// redis-benchmark ends at the first error, even if it is only that so many new keys at once
	// exceed --max-lag.
	Flags []string `help:"More flags of twotier serve, such as --max-lag=0."`
}

// RespResult is the result of Resp: a run for each way, length of pipeline and turn.
type RespResult struct {
	Runs []RespRun `json:"runs"`
}

// RespRun is one run of redis-benchmark.
type RespRun struct {
	Way      string  `json:"way"`
	Pipeline int     `json:"pipeline"`
	PerS     float64 `json:"per_second"`
	P50MS    float64 `json:"p50_ms"`
	P99MS    float64 `json:"p99_ms"`
	// ServerUS is the processor time of the server, in microseconds per request. RedisUS is that of
	// the Redis behind it, until it had everything.
	ServerUS float64 `json:"server_us"`
	RedisUS  float64 `json:"redis_us"`
	// GeneratorUS is the processor time of redis-benchmark, 0 if it was not measured.
	GeneratorUS float64 `json:"generator_us,omitempty"`
}

// Share returns redis-benchmark's part of all processor time.
func (r RespRun) Share() float64 {
	return ratio(r.GeneratorUS, r.GeneratorUS+r.ServerUS+r.RedisUS)
}

// The ways, in the order in which they take turns.
const (
	wayScript  = "hash-lua"
	wayIncr    = "INCR"
	wayNothing = "ECHO"
	wayTwotier = "TT.ACQUIRE"
)

// respWay is a server and the command to send.
type respWay struct {
	name    string
	stand   *rival.Stand
	address string
	command []string
}

// Run starts the servers and has them take turns.
func (o *Resp) Run(ctx context.Context, b *bench) (err error) {
	ways, stop, err := o.start(ctx, b)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	var r RespResult
	for range o.Count {
		for _, pipeline := range o.Pipelines {
			for _, w := range ways {
				run, err := o.drive(ctx, w, pipeline)
				if err != nil {
					return fmt.Errorf("%s: %w", w.name, err)
				}
				log.Printf("%-10s -P %-3d %8.0f/s  p99 %.2f ms  %.2f us", w.name, pipeline,
					run.PerS, run.P99MS, run.ServerUS)
				r.Runs = append(r.Runs, run)
			}
		}
	}
	return save(b, o, r)
}

// start starts a Redis for the script and for INCR, and twotier over another one.
func (o *Resp) start(ctx context.Context, b *bench) (ways []respWay, stop func() error, err error) {
	var all rival.Stand
	stop = all.Close
	env, err := b.programs(ctx)
	if err != nil {
		return nil, stop, err
	}
	bare, err := rival.Redis()
	if err != nil {
		return nil, stop, err
	}
	all.OnClose(bare.Close)
	script, err := limiter.NewScripted(ctx, wayScript, bare.RDB)
	if err != nil {
		return nil, stop, err
	}
	own, err := rival.Twotier("twotier-resp", 1, rival.TwoTier,
		append([]string{"--resp", "127.0.0.1:0"}, o.Flags...)...).Start(ctx, env)
	if err != nil {
		return nil, stop, err
	}
	all.OnClose(own.Close)
	const key = "key:__rand_int__" // redis-benchmark draws the number
	limits := []limiter.Limit{{Window: (30 * time.Second).Milliseconds(), Max: 2}}
	check := []limiter.Check{{Key: []byte(key), N: 1, Limits: limits}}
	return []respWay{
		{wayScript, bare, bare.Redis.Addr, script.Command(check, time.Now().UnixMilli())},
		{wayIncr, bare, bare.Redis.Addr, []string{"INCR", key}},
		{wayNothing, own, own.Servers[0].Resp, []string{"ECHO", key}},
		{wayTwotier, own, own.Servers[0].Resp, []string{"TT.ACQUIRE", key, "LIMIT", "30s", "2"}},
	}, stop, nil
}

// drive runs redis-benchmark once.
func (o *Resp) drive(ctx context.Context, w respWay, pipeline int) (r RespRun, err error) {
	host, port, err := net.SplitHostPort(w.address)
	if err != nil {
		return r, err
	}
	args := strings.Fields(fmt.Sprintf("-h %s -p %s -c %d -n %d -r %d -P %d --csv", host, port,
		o.Clients, o.Requests, o.Keys, pipeline))
	if o.Threads > 0 {
		args = append(args, "--threads", strconv.Itoa(o.Threads))
	}
	before, err := w.stand.Usage(ctx)
	if err != nil {
		return r, err
	}
	cmd := exec.CommandContext(ctx, "redis-benchmark", append(args, w.command...)...)
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("redis-benchmark: %w: %s%.500s", err, failure.String(), out)
	}
	if err := w.stand.Drain(ctx); err != nil {
		return r, err
	}
	after, err := w.stand.Usage(ctx)
	if err != nil {
		return r, err
	}
	used := after.Since(before)
	each := 1e6 / float64(o.Requests)
	r = RespRun{Way: w.name, Pipeline: pipeline, RedisUS: used.Redis.CPU * each}
	of := cmd.ProcessState
	r.GeneratorUS = (of.UserTime() + of.SystemTime()).Seconds() * each
	if r.ServerUS = used.Service * each; len(w.stand.Servers) == 0 {
		r.ServerUS, r.RedisUS = r.RedisUS, 0
	}
	return r, r.read(string(out))
}

// read reads the output of redis-benchmark --csv.
func (r *RespRun) read(out string) error {
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil || len(rows) != 2 || len(rows[0]) != len(rows[1]) {
		return fmt.Errorf("redis-benchmark printed %.200q: %w", out,
			errors.Join(err, errors.New("not a header and a row")))
	}
	for name, to := range map[string]*float64{"rps": &r.PerS, "p50_latency_ms": &r.P50MS,
		"p99_latency_ms": &r.P99MS} {
		at := slices.Index(rows[0], name)
		if at < 0 {
			return fmt.Errorf("redis-benchmark printed no %s", name)
		}
		if *to, err = strconv.ParseFloat(rows[1][at], 64); err != nil {
			return fmt.Errorf("redis-benchmark: %s: %w", name, err)
		}
	}
	return nil
}

// Pipelines returns the lengths of pipelines, each once.
func (r RespResult) Pipelines() []int {
	return distinct(r.Runs, func(run RespRun) int { return run.Pipeline })
}

// Of returns the median run, by throughput, of one way and length of pipeline.
func (r RespResult) Of(way string, pipeline int) RespRun {
	runs := slices.DeleteFunc(slices.Clone(r.Runs), func(run RespRun) bool {
		return run.Way != way || run.Pipeline != pipeline
	})
	if len(runs) == 0 {
		return RespRun{}
	}
	slices.SortFunc(runs, func(a, b RespRun) int { return cmp.Compare(a.PerS, b.PerS) })
	return runs[len(runs)/2]
}

// Ways returns the names of the ways, in the order in which they took turns.
func (r RespResult) Ways() []string {
	return distinct(r.Runs, func(run RespRun) string { return run.Way })
}

// Ratio returns twotier's throughput divided by that of another way, from the median runs.
func (r RespResult) Ratio(way string, pipeline int) float64 {
	return ratio(r.Of(wayTwotier, pipeline).PerS, r.Of(way, pipeline).PerS)
}

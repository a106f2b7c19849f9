package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"strings"
	"time"

	"twotier/bench/load"
	"twotier/bench/report"
	"twotier/bench/rival"
	"twotier/redisstore"
	"twotier/syncer"
)

type options struct {
	rate   float64
	before time.Duration
	rounds int
	out    string
}

func main() {
	var o options
	flag.Float64Var(&o.rate, "rate", 20_000, "adds per second")
	flag.DurationVar(&o.before, "before", 2*time.Second, "time until the server is killed")
	flag.IntVar(&o.rounds, "rounds", 3, "kills of each setting")
	flag.StringVar(&o.out, "out", "results", "`directory` of the results")
	rival.Main(func(ctx context.Context, env *rival.Env) error { return run(ctx, env, o) })
}

// Kill is what one kill has cost.
type Kill struct {
	Setting string `json:"setting"`
	// Acknowledged adds were answered well, Stored are in Redis afterwards: more than were acknowledged, if some were stored
	// whose answer did not arrive. Lost are the others.
	Acknowledged int64 `json:"acknowledged"`
	Stored       int64 `json:"stored"`
	Lost         int64 `json:"lost"`
	// LostMS is Lost as a time of the stream.
	LostMS float64 `json:"lost_ms"`
	// Bound is what the setting promises, as a time of the stream.
	BoundMS float64 `json:"bound_ms"`
}

type setting struct {
	name     string
	interval time.Duration
	flags    []string
	bound    time.Duration
}

// settings are what a user can choose. An interval is jittered by a tenth; what is on its way to Redis when the process is
// killed comes on top.
func settings() (all []setting) {
	for _, d := range []time.Duration{10 * time.Millisecond, 200 * time.Millisecond, time.Second} {
		all = append(all, setting{fmt.Sprintf("two-tier, ack=memory, flush %v", d), d, []string{"--ack", "memory"}, d})
	}
	return append(all, setting{"two-tier, ack=redis", 200 * time.Millisecond, []string{"--ack", "redis"}, 0},
		setting{"redis mode", 0, []string{"--mode", "redis"}, 0})
}

func run(ctx context.Context, env *rival.Env, o options) (err error) {
	var kills []Kill
	for _, s := range settings() {
		for range o.rounds {
			k, err := o.kill(ctx, *env, s)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			log.Printf("%-34s %d acknowledged, %d stored, %d lost", k.Setting, k.Acknowledged, k.Stored, k.Lost)
			kills = append(kills, k)
		}
	}
	fmt.Print(markdown(o, kills))
	return report.Report{
		Name: "loss", Title: "What a crash loses",
		Command: fmt.Sprintf("go run ./cmd/loss -rate %.0f -before %v -rounds %d", o.rate, o.before, o.rounds),
		Data:    map[string]any{"kills": kills}, Body: markdown(o, kills),
	}.Write(ctx, o.out)
}

const keys = 500

// kill sends adds and kills the server while they come in.
func (o options) kill(ctx context.Context, env rival.Env, s setting) (k Kill, err error) {
	env.Flush = s.interval
	stand, err := rival.Twotier("twotier", 1, rival.TwoTier, s.flags...).Start(ctx, &env)
	if err != nil {
		return k, err
	}
	defer func() { err = errors.Join(err, stand.Close()) }()
	timer := time.AfterFunc(o.before, stand.Servers[0].Kill)
	defer timer.Stop()
	r, err := load.Run(ctx, load.Options{
		Addr: stand.Servers[0].Addr, Op: load.OpBatch, PerCall: 20, Keys: "uniform", Space: keys, Conns: 16, Rate: o.rate,
		Duration: o.before + 2*time.Second,
	})
	if err != nil {
		return k, err
	}
	if r.Errors == 0 {
		return k, errors.New("the server survived")
	}
	k = Kill{Setting: s.name, Acknowledged: r.Operations, BoundMS: float64(s.bound.Milliseconds())}
	if k.Stored, err = stored(ctx, stand); err != nil {
		return k, err
	}
	k.Lost = max(k.Acknowledged-k.Stored, 0)
	k.LostMS = float64(k.Lost) / o.rate * 1e3
	return k, nil
}

// stored asks Redis for the sum of all keys.
func stored(ctx context.Context, s *rival.Stand) (sum int64, err error) {
	store, err := rival.OpenStore(ctx, s, s.Redis.Addr)
	if err != nil {
		return 0, err
	}
	d, err := redisstore.NewDirect(redisstore.DirectOptions{
		Store: store, Now: func() int64 { return time.Now().UnixMilli() }, Writer: "reader",
	})
	if err != nil {
		return 0, err
	}
	if err := d.Open(ctx); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.Close(ctx)) }()
	var res syncer.Result
	for key := range uint64(keys) {
		op := syncer.Op{Kind: syncer.Count, Checks: []syncer.Check{
			{Key: []byte(load.Key(key)), N: 1, Limits: []syncer.Limit{{Window: 3_600_000}}},
		}}
		if err := d.Do(ctx, &op, &res); err != nil {
			return 0, fmt.Errorf("count: %w", err)
		}
		sum += res.Checks[0].Limits[0].Hi
	}
	return sum, nil
}

const text = `%.0f adds a second in batches of 20; after %v the server is killed (SIGKILL) while they come in. *Acknowledged* were answered
before; *stored* are in Redis afterwards; *lost* are acknowledged and not stored, also as a time of the stream. Limiters that
keep everything in Redis lose nothing with their caller, those that keep it in a process alone (gubernator without a
store of one's own, sentinel) lose everything with it.

`

func markdown(o options, kills []Kill) string {
	var rows [][]string
	for _, k := range kills {
		rows = append(rows, report.Cells("%s|%d|%d|%d|%.0f ms|%.0f ms", k.Setting, k.Acknowledged, k.Stored, k.Lost, k.LostMS, k.BoundMS))
	}
	var b strings.Builder
	fmt.Fprintf(&b, text, o.rate, o.before)
	b.WriteString(report.Table([]string{"setting", "acknowledged", "stored", "lost", "as time", "declared"}, rows))
	return b.String()
}

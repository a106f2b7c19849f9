package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"strconv"
	"time"

	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/limiter"
	"twotier.dev/twotier/bench/rival"
	"twotier.dev/twotier/internal/load"
)

// Growth measures how costs grow: from ten thousand to ten million keys, from one rule to four,
// from one node to five.
type Growth struct {
	Parts    []string      `help:"What to measure." default:"cold,keys,rules,nodes"`
	MaxKeys  int           `help:"Most keys, ten thousand times a power of ten." default:"10000000"`
	Nodes    int           `help:"Most nodes." default:"5"`
	Duration time.Duration `help:"Of one measurement." default:"2s"`
}

// GrowthResult is the result of Growth.
type GrowthResult struct {
	Cold  *ColdPoint    `json:"cold,omitempty"`
	Keys  []KeysPoint   `json:"keys"`
	Rules []GrowthPoint `json:"rules"`
	Nodes []GrowthPoint `json:"nodes"`
}

// GrowthPoint is a closed loop at one point of a scale.
type GrowthPoint struct {
	Name     string  `json:"name"`
	Workload string  `json:"workload"`
	Rules    float64 `json:"rules"`
	Nodes    float64 `json:"nodes"`
	// Single and Batched are decisions per second. Batched is 0 if the rival has no batches.
	Single  float64 `json:"single_per_second"`
	Batched float64 `json:"batched_per_second"`
	// Usage is that of the batched loop, or of the single one, and Decisions how many it made.
	Usage     rival.Usage `json:"usage"`
	Decisions int64       `json:"decisions"`
}

// Of returns the point as a run.
func (p GrowthPoint) Of() *Run {
	return &Run{Result: drive.Result{Decisions: p.Decisions}, Usage: p.Usage}
}

// Run measures the requested parts.
func (o *Growth) Run(ctx context.Context, b *bench) error {
	env, err := b.programs(ctx)
	if err != nil {
		return err
	}
	var r GrowthResult
	for _, part := range []struct {
		name string
		run  func() error
	}{
		{"cold", func() error { return r.cold(ctx) }},
		{"keys", func() error { return r.keys(ctx, env, o) }},
		{"rules", func() error { return r.rules(ctx, env, o) }},
		{"nodes", func() error { return r.nodes(ctx, env, o) }},
	} {
		if !slices.Contains(o.Parts, part.name) {
			continue
		}
		if err := part.run(); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return save(b, "growth", o, r)
}

// KeysPoint is the cost of an operation with that many live keys.
type KeysPoint struct {
	Keys int `json:"keys"`
	// Add and Acquire (two rules) are in nanoseconds of one core, by a counter in a process of its
	// own, on keys drawn evenly. Floor is the cost of drawing and naming a key, which both include.
	Add     float64 `json:"add_ns"`
	Acquire float64 `json:"acquire_ns"`
	Floor   float64 `json:"floor_ns"`
	// Resident is the growth of the process, and Counted what the counter itself accounts for, both
	// in bytes per key.
	Resident float64 `json:"resident_bytes_per_key"`
	Counted  float64 `json:"counted_bytes_per_key"`
	// Server is adds per second of a server in memory, in batches of 1,000.
	Server float64 `json:"server_adds_per_second"`
}

// keys measures at ten thousand keys, and at ten times as many up to the most.
func (r *GrowthResult) keys(ctx context.Context, env rival.Env, o *Growth) error {
	m, err := measureMicro(ctx, "^BenchmarkKeys$", o.Duration.String(), "-max-keys",
		strconv.Itoa(o.MaxKeys))
	if err != nil {
		return err
	}
	for keys := 10_000; keys <= o.MaxKeys; keys *= 10 {
		of := func(name string) map[string]float64 {
			return m.one("Keys/" + fmt.Sprintf(name, keys))
		}
		add := of("add/keys=%d/op")
		p := KeysPoint{
			Keys: keys, Add: add["core-ns/op"], Acquire: of("acquire/keys=%d/op")["core-ns/op"],
			Floor: of("floor/keys=%d")["core-ns/op"], Resident: add["resident-B/key"],
			Counted: add["counted-B/key"],
		}
		if p.Server, err = serverAdds(ctx, env, keys, o.Duration); err != nil {
			return fmt.Errorf("%d: server: %w", keys, err)
		}
		r.Keys = append(r.Keys, p)
	}
	return nil
}

// serverAdds measures quiet batches of adds, after every key has been counted once.
func serverAdds(ctx context.Context, env rival.Env, keys int,
	d time.Duration) (perSecond float64, err error) {
	rv := rival.Twotier("twotier-memory", 1, rival.Memory, "--max-memory", "12GiB")
	s, err := rv.Start(ctx, env)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	name := func(key int) string { return fmt.Sprint("bench:", key) } // as load.Run does
	if err := drive.Fill(s.Servers[0].Addr, keys, name, 0); err != nil {
		return 0, err
	}
	r, err := once(ctx, load.Options{
		URL: "http://" + s.Servers[0].Addr, Op: "batch", Batch: 1000, Connections: 4, Keys: keys,
		Duration: d,
	})
	return r.PerSecond, err
}

// ColdPoint is the extra cost, per key, of reading a key back from Redis compared with one in
// memory.
type ColdPoint struct {
	Keys int `json:"keys"`
	// Load and RedisLoad are in microseconds of one core. Bytes counts both directions.
	Load      float64 `json:"load_us"`
	RedisLoad float64 `json:"redis_load_us"`
	Bytes     float64 `json:"bytes"`
}

// cold measures with that many keys.
func (r *GrowthResult) cold(ctx context.Context) error {
	const keys = 500_000
	m, err := measureMicro(ctx, "^BenchmarkCold$", strconv.Itoa(keys)+"x")
	of := m.one("Cold")
	r.Cold = &ColdPoint{keys, of["load-us/key"], of["redis-us/key"], of["redis-B/key"]}
	return err
}

// rules adds one rule after the other.
func (r *GrowthResult) rules(ctx context.Context, env rival.Env, o *Growth) error {
	names := []string{"zset-lua", "hash-lua", "redis-rate", "twotier-lib", "twotier",
		"twotier-redis-mode"}
	some, err := rival.Select(rival.All(), names)
	if err != nil {
		return err
	}
	four := append(drive.Rules(), limiter.Limit{Window: 86_400_000, Max: 200},
		limiter.Limit{Window: 600_000, Max: 30})
	for n := range four {
		for _, rv := range some {
			p, err := o.point(ctx, env, rv, drive.Options{Workload: "zipf", Rules: four[:n+1]})
			if err != nil {
				return err
			}
			p.Rules, p.Nodes = float64(n+1), 1
			r.Rules = append(r.Rules, p)
		}
	}
	return nil
}

// nodes adds one node after the other.
func (r *GrowthResult) nodes(ctx context.Context, env rival.Env, o *Growth) error {
	for _, workload := range []string{"zipf", "messages", drive.Tagged} {
		for n := 1; n <= o.Nodes; n++ {
			rv := rival.Twotier("twotier", n, rival.TwoTier)
			if workload == drive.Tagged {
				rv = rival.Tagged("twotier", n)
			}
			p, err := o.point(ctx, env, rv, drive.Options{Workload: workload})
			if err != nil {
				return err
			}
			p.Nodes = float64(n)
			r.Nodes = append(r.Nodes, p)
		}
	}
	return nil
}

// point runs a closed loop of single decisions and one of batches.
func (o *Growth) point(ctx context.Context, env rival.Env, rv rival.Rival,
	d drive.Options) (p GrowthPoint, err error) {
	s, err := rv.Start(ctx, env)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	d.Duration = o.Duration
	single, many, err := closed(ctx, s, d, 200)
	if err != nil {
		return p, fmt.Errorf("%s: %w", rv.Name, err)
	}
	p = GrowthPoint{Name: rv.Name, Workload: d.Workload, Single: single.PerSecond}
	if many != nil {
		p.Batched, single = many.PerSecond, many
	}
	p.Usage, p.Decisions = single.Usage, single.Decisions
	log.Printf("%-20s %s, %d rules: %8.0f/s, in batches %8.0f/s", p.Name, d.Workload, len(d.Rules),
		p.Single, p.Batched)
	return p, nil
}

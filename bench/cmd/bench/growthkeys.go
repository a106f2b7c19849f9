package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"time"

	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/rival"
	"twotier.dev/twotier/internal/embedded"
	"twotier.dev/twotier/internal/load"
	"twotier.dev/twotier/syncer"
)

// KeysPoint is the cost of an operation when so many keys live.
type KeysPoint struct {
	Keys int `json:"keys"`
	// Add and Acquire (two rules) are in nanoseconds of one core, by a counter in this process, on
	// keys drawn evenly. Floor is what drawing and naming a key costs, which is in both.
	Add     float64 `json:"add_ns"`
	Acquire float64 `json:"acquire_ns"`
	Floor   float64 `json:"floor_ns"`
	// Resident is the growth of the process, Counted what the counter accounts for itself; in bytes
	// for each key.
	Resident float64 `json:"resident_bytes_per_key"`
	Counted  float64 `json:"counted_bytes_per_key"`
	// Server is adds per second of a server in memory, in batches of 1,000.
	Server float64 `json:"server_adds_per_second"`
}

// keys measures at ten thousand keys, and at ten times as many up to the most.
func (r *GrowthResult) keys(ctx context.Context, env rival.Env, o *Growth) error {
	for keys := 10_000; keys <= o.MaxKeys; keys *= 10 {
		p := KeysPoint{Keys: keys}
		if err := p.library(ctx, o.Duration); err != nil {
			return fmt.Errorf("%d: %w", keys, err)
		}
		debug.FreeOSMemory() // the server needs as much memory as the library had
		if err := p.server(ctx, env, o.Duration); err != nil {
			return fmt.Errorf("%d: server: %w", keys, err)
		}
		log.Printf("%d keys: add %.0f ns, acquire %.0f ns, %.0f bytes a key", p.Keys, p.Add,
			p.Acquire, p.Resident)
		r.Keys = append(r.Keys, p)
	}
	return nil
}

// limits are the rules of an operation, which have room for everything; an add has none.
func limits(kind syncer.Kind) []syncer.Limit {
	if kind == syncer.Add {
		return nil
	}
	return []syncer.Limit{{Window: 60_000, Max: 1 << 40}, {Window: hour, Max: 1 << 40}}
}

// library measures adds over a store that acknowledges all and keeps nothing, which in earnest is
// another process, and acquires over one that answers what it was told, in this process: what was
// only added to is read from the store when a decision first needs its past.
func (p *KeysPoint) library(ctx context.Context, d time.Duration) (err error) {
	nothing := func(context.Context, *syncer.Op, *syncer.Result) error { return nil }
	if p.Floor, err = cost(ctx, d, syncer.Add, p.Keys, nothing); err != nil {
		return err
	}
	empty, err := rival.Resident()
	if err != nil {
		return err
	}
	err = withCounter(ctx, &rival.AckStore{}, func(c *syncer.Counter) error {
		if err := errors.Join(countAll(ctx, c, p.Keys, syncer.Add), c.Flush(ctx)); err != nil {
			return err
		}
		full, err := rival.Resident()
		if err != nil {
			return err
		}
		p.Resident = float64(full-empty) / float64(p.Keys)
		p.Counted = float64(c.Stats().MemoryBytes) / float64(p.Keys)
		p.Add, err = cost(ctx, d, syncer.Add, p.Keys, c.Do)
		return err
	})
	if err != nil {
		return err
	}
	store := embedded.New(embedded.Options{MaxMemory: 8 << 30})
	return withCounter(ctx, store, func(c *syncer.Counter) error {
		if err := errors.Join(countAll(ctx, c, p.Keys, syncer.Acquire), c.Flush(ctx)); err != nil {
			return err
		}
		p.Acquire, err = cost(ctx, d, syncer.Acquire, p.Keys, c.Do)
		return err
	})
}

// withCounter opens a counter for fn.
func withCounter(ctx context.Context, store syncer.Store, fn func(*syncer.Counter) error) error {
	var s rival.Stand
	c, err := s.OpenCounter(ctx, syncer.Options{Store: store, MaxMemory: 16 << 30,
		LoadTimeout: time.Minute})
	if err != nil {
		return err
	}
	return errors.Join(fn(c), s.Close())
}

// countAll carries out one operation for each key, many at a time.
func countAll(ctx context.Context, c *syncer.Counter, keys int, kind syncer.Kind) error {
	const round = 10_000
	ops, res := make([]syncer.Op, 0, round), make([]syncer.Result, round)
	for key := range keys {
		check := syncer.Check{Key: []byte(drive.Key(uint64(key))), N: 1, Limits: limits(kind)}
		ops = append(ops, syncer.Op{Kind: kind, Checks: []syncer.Check{check}})
		if len(ops) < round && key < keys-1 {
			continue
		}
		c.DoAll(ctx, ops, res[:len(ops)])
		for i := range ops {
			if err := res[i].Err; err != nil {
				return fmt.Errorf("key %s: %w", ops[i].Checks[0].Key, err)
			}
		}
		ops = ops[:0]
	}
	return ctx.Err()
}

// operation is how a counter carries one out.
type operation func(context.Context, *syncer.Op, *syncer.Result) error

// cost runs operations on random keys on all cores, a thousand in a call of the loop, and returns
// the nanoseconds of one on one core.
func cost(
	ctx context.Context, d time.Duration, kind syncer.Kind, keys int, do operation,
) (float64, error) {
	const round = 1000
	var workers []load.Worker
	procs := runtime.GOMAXPROCS(0)
	for i := range procs {
		r := rand.New(rand.NewPCG(uint64(i), uint64(keys)))
		op := syncer.Op{Kind: kind, Checks: []syncer.Check{{N: 1, Limits: limits(kind)}}}
		var res syncer.Result
		workers = append(workers, load.Worker{
			Next: func() (time.Duration, bool) { return 0, true },
			Do: func() (err error) {
				for range round {
					name := &op.Checks[0].Key
					*name = drive.AppendKey((*name)[:0], r.Uint64N(uint64(keys)))
					err = errors.Join(err, do(ctx, &op, &res))
				}
				return err
			},
		})
	}
	t := load.Loop{Duration: d}.Run(ctx, workers)
	ns := t.Seconds * 1e9 * float64(procs) / float64(max(t.Calls, 1)*round)
	return ns, errors.Join(t.Err(), ctx.Err())
}

// server measures quiet batches of adds, after every key has been counted once.
func (p *KeysPoint) server(ctx context.Context, env rival.Env, d time.Duration) (err error) {
	rv := rival.Twotier("twotier-memory", 1, rival.Memory, "--max-memory", "12GiB")
	s, err := rv.Start(ctx, env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	c, err := connect(s.Servers[0].Addr)
	if err != nil {
		return err
	}
	defer c.Close()
	name := func(key int) string { return fmt.Sprint("bench:", key) } // as load.Run does
	if err := fill(c, p.Keys, name, 0); err != nil {
		return err
	}
	r, err := once(ctx, load.Options{
		URL: "http://" + s.Servers[0].Addr, Op: "batch", Batch: 1000, Connections: 4, Keys: p.Keys,
		Duration: d,
	})
	p.Server = r.PerSecond
	return err
}

// ColdPoint is what it costs to read a key back from Redis, beyond what asking for one in memory
// costs, for each key.
type ColdPoint struct {
	Keys int `json:"keys"`
	// Load and RedisLoad are in microseconds of one core, Bytes to and from Redis.
	Load      float64 `json:"load_us"`
	RedisLoad float64 `json:"redis_load_us"`
	Bytes     float64 `json:"bytes"`
}

// cold has one counter count keys, and another, which starts with nothing in memory, asked for all
// of them, twice.
func (r *GrowthResult) cold(ctx context.Context) (err error) {
	const keys = 500_000
	s, err := rival.Redis()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	store, err := s.OpenStore(ctx)
	if err != nil {
		return err
	}
	if err := withCounter(ctx, store, func(c *syncer.Counter) error {
		return errors.Join(countAll(ctx, c, keys, syncer.Add), c.Flush(ctx))
	}); err != nil {
		return err
	}
	return withCounter(ctx, store, func(c *syncer.Counter) error {
		var at [3]rival.Usage
		for i := range at {
			if i > 0 {
				if err := countAll(ctx, c, keys, syncer.Count); err != nil {
					return err
				}
			}
			var err error
			if at[i], err = s.Usage(ctx); err != nil {
				return err
			}
		}
		first, again := at[1].Since(at[0]), at[2].Since(at[1])
		bytes := func(u rival.Usage) int64 { return u.Redis.BytesIn + u.Redis.BytesOut }
		r.Cold = &ColdPoint{
			Keys: keys, Load: (first.Driver - again.Driver) / keys * 1e6,
			RedisLoad: (first.Redis.CPU - again.Redis.CPU) / keys * 1e6,
			Bytes:     float64(bytes(first)-bytes(again)) / keys,
		}
		return nil
	})
}

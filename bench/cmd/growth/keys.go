package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"twotier/bench/ack"
	"twotier/bench/load"
	"twotier/bench/measure"
	"twotier/bench/rival"
	"twotier/internal/embedded"
	"twotier/syncer"
)

// KeysPoint is the cost of an operation when so many keys live.
type KeysPoint struct {
	Keys int `json:"keys"`
	// Add and Acquire (two rules) are in nanoseconds of one core, by a counter in this process, on keys drawn evenly.
	Add     float64 `json:"add_ns"`
	Acquire float64 `json:"acquire_ns"`
	// Floor is what drawing and naming a key costs, which is in both.
	Floor float64 `json:"floor_ns"`
	// Resident is the growth of the process, Counted what the counter accounts for itself; in bytes for each key.
	Resident float64 `json:"resident_bytes_per_key"`
	Counted  float64 `json:"counted_bytes_per_key"`
	// Server is adds per second of a server in memory, in batches of 1,000.
	Server float64 `json:"server_adds_per_second"`
}

func (o options) keys(ctx context.Context, env *rival.Env, keys int) (p *KeysPoint, err error) {
	p = &KeysPoint{Keys: keys}
	if err := o.library(ctx, p); err != nil {
		return nil, err
	}
	// The server needs as much memory as the library had.
	debug.FreeOSMemory()
	return p, o.server(ctx, env, p)
}

// library measures adds over a store that acknowledges all and keeps nothing, which in earnest is another process, and
// acquires over one that answers what it was told, in this process.
func (o options) library(ctx context.Context, p *KeysPoint) error {
	nothing := func(context.Context, *syncer.Op, *syncer.Result) error { return nil }
	var err error
	if p.Floor, err = o.cost(ctx, addOp(), p.Keys, nothing); err != nil {
		return err
	}
	empty, err := measure.Resident()
	if err != nil {
		return err
	}
	err = with(ctx, ack.New(), func(c *syncer.Counter) error {
		if err := errors.Join(fillByAdd(ctx, c, p.Keys), c.Flush(ctx)); err != nil {
			return err
		}
		full, err := measure.Resident()
		if err != nil {
			return err
		}
		p.Resident = float64(full-empty) / float64(p.Keys)
		p.Counted = float64(c.Stats().MemoryBytes) / float64(p.Keys)
		p.Add, err = o.cost(ctx, addOp(), p.Keys, c.Do)
		return err
	})
	if err != nil {
		return err
	}
	return with(ctx, embedded.New(embedded.Options{MaxMemory: 8 << 30}), func(c *syncer.Counter) error {
		if err := errors.Join(fillByAcquire(ctx, c, p.Keys), c.Flush(ctx)); err != nil {
			return err
		}
		op := syncer.Op{Kind: syncer.Acquire, Checks: []syncer.Check{{N: 1, Limits: rules()}}}
		p.Acquire, err = o.cost(ctx, op, p.Keys, c.Do)
		return err
	})
}

func addOp() syncer.Op { return syncer.Op{Kind: syncer.Add, Checks: []syncer.Check{{N: 1}}} }

// with opens a counter for fn.
func with(ctx context.Context, store syncer.Store, fn func(*syncer.Counter) error) error {
	c, err := syncer.New(syncer.Options{Store: store, MaxMemory: 16 << 30, LoadTimeout: 20 * time.Second})
	if err != nil {
		return err
	}
	if err := c.Open(ctx); err != nil {
		return err
	}
	return errors.Join(fn(c), c.Close(ctx))
}

// fillByAdd counts one event for each key.
func fillByAdd(ctx context.Context, c *syncer.Counter, keys int) error {
	op := addOp()
	var res syncer.Result
	var name []byte
	for key := range keys {
		name = load.AppendKey(name[:0], uint64(key))
		op.Checks[0].Key = name
		if err := c.Do(ctx, &op, &res); err != nil {
			return fmt.Errorf("key %d: %w", key, err)
		}
	}
	return ctx.Err()
}

// fillByAcquire acquires each key once, many at a time: what was only added to is read from the store when a decision first
// needs its past.
func fillByAcquire(ctx context.Context, c *syncer.Counter, keys int) error {
	const round = 50_000
	ops := make([]syncer.Op, 0, round)
	res := make([]syncer.Result, round)
	for key := range keys {
		check := syncer.Check{Key: []byte(load.Key(uint64(key))), N: 1, Limits: rules()}
		ops = append(ops, syncer.Op{Kind: syncer.Acquire, Checks: []syncer.Check{check}})
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

// rules have room for everything.
func rules() []syncer.Limit {
	return []syncer.Limit{{Window: 60_000, Max: 1 << 40}, {Window: 3_600_000, Max: 1 << 40}}
}

// operation is how a counter carries one out.
type operation func(context.Context, *syncer.Op, *syncer.Result) error

// cost runs an operation on random keys on all cores and returns its nanoseconds of one.
func (o options) cost(ctx context.Context, op syncer.Op, keys int, do operation) (float64, error) {
	procs := runtime.GOMAXPROCS(0)
	errs := make([]error, procs)
	var done atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	end := start.Add(o.duration)
	for i := range procs {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), uint64(keys)))
			own := op
			own.Checks = append([]syncer.Check(nil), op.Checks...)
			var res syncer.Result
			var name []byte
			for errs[i] == nil && time.Now().Before(end) {
				const round = 1000
				for range round {
					name = load.AppendKey(name[:0], r.Uint64N(uint64(keys)))
					own.Checks[0].Key = name
					errs[i] = errors.Join(errs[i], do(ctx, &own, &res))
				}
				done.Add(round)
			}
		})
	}
	wg.Wait()
	return float64(time.Since(start).Nanoseconds()) * float64(procs) / float64(done.Load()), errors.Join(errs...)
}

// server measures quiet batches of adds, after every key has been counted once.
func (o options) server(ctx context.Context, env *rival.Env, p *KeysPoint) (err error) {
	s, err := rival.Twotier("twotier-memory", 1, rival.Memory, "--max-memory", "12GiB").Start(ctx, env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	conn, err := load.Dial(s.Servers[0].Addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	const perCall = 1000
	request := load.NewRequest(s.Servers[0].Addr, load.OpBatch, perCall, false)
	for key := 0; key < p.Keys && ctx.Err() == nil; key += perCall {
		for i := range perCall {
			request.SetKey(i, uint64(key+i))
		}
		if err := conn.Do(request); err != nil {
			return err
		}
	}
	r, err := load.Run(ctx, load.Options{
		Addr: s.Servers[0].Addr, Op: load.OpBatch, PerCall: perCall, Conns: 4, Space: uint64(p.Keys), Duration: o.duration,
	})
	p.Server = r.PerSecond
	return errors.Join(err, r.Err())
}

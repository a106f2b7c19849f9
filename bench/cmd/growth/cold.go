package main

import (
	"context"
	"errors"
	"fmt"

	"twotier/bench/load"
	"twotier/bench/measure"
	"twotier/bench/rival"
	"twotier/syncer"
)

// ColdPoint is what it costs to read a key back from Redis, beyond what asking for one in memory costs, for each key.
type ColdPoint struct {
	Keys int `json:"keys"`
	// Load and RedisLoad are in microseconds of one core, Bytes to and from Redis.
	Load      float64 `json:"load_us"`
	RedisLoad float64 `json:"redis_load_us"`
	Bytes     float64 `json:"bytes"`
}

// coldKeys is how many keys are read back.
const coldKeys = 500_000

// cold has one counter count keys, and another, which starts with nothing in memory, asked for all of them, twice.
func cold(ctx context.Context) (p *ColdPoint, err error) {
	s, err := rival.Redis(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	store, err := rival.OpenStore(ctx, s, s.Redis.Addr)
	if err != nil {
		return nil, err
	}
	if err := with(ctx, store, func(c *syncer.Counter) error { return errors.Join(fillByAdd(ctx, c, coldKeys), c.Flush(ctx)) }); err != nil {
		return nil, err
	}
	p = &ColdPoint{Keys: coldKeys}
	return p, with(ctx, store, func(c *syncer.Counter) error {
		var pass [2]measure.Usage
		for i := range pass {
			before, err := measure.Of(ctx, s)
			if err != nil {
				return err
			}
			if err := countAll(ctx, c, coldKeys); err != nil {
				return err
			}
			after, err := measure.Of(ctx, s)
			if err != nil {
				return err
			}
			pass[i] = after.Since(before)
		}
		first, again := pass[0], pass[1]
		p.Load = (first.Driver - again.Driver) / coldKeys * 1e6
		p.RedisLoad = (first.Work.CPU - again.Work.CPU) / coldKeys * 1e6
		p.Bytes = float64(first.Work.BytesIn+first.Work.BytesOut-again.Work.BytesIn-again.Work.BytesOut) / coldKeys
		return nil
	})
}

// countAll asks for every key once, 200 in a call. Each has been counted once.
func countAll(ctx context.Context, c *syncer.Counter, keys int) error {
	const round = 200
	ops, res := make([]syncer.Op, round), make([]syncer.Result, round)
	for key := 0; key < keys; key += round {
		for i := range ops {
			ops[i] = syncer.Op{Kind: syncer.Count, Checks: []syncer.Check{{Key: []byte(load.Key(uint64(key + i))), Limits: rules()}}}
		}
		c.DoAll(ctx, ops, res)
		for i := range res {
			if err := res[i].Err; err != nil {
				return err
			}
			if n := res[i].Checks[0].Limits[1].Hi; n != 1 {
				return fmt.Errorf("key %d is %d, want 1", key+i, n)
			}
		}
	}
	return ctx.Err()
}

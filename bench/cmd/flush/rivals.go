package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"twotier/bench/limiter"
	"twotier/bench/load"
	"twotier/bench/trace"
)

// Row is the work of one way of counting on one trace.
type Row struct {
	Way    string `json:"way"`
	Trace  string `json:"trace"`
	Events int    `json:"events"`
	// PerSecond is how fast the events went through; twotier was sent them at a fixed rate instead.
	PerSecond float64 `json:"events_per_second"`
	Work      Work    `json:"redis_work"`
}

// rules are those that load gives to an acquire.
var rules = []limiter.Limit{{Window: 60_000, Max: 15}, {Window: 3_600_000, Max: 50}}

// events draws the keys of a trace.
func events(name string, n int) ([]uint64, error) {
	keys, err := trace.NewKeys(name, 1, 1_000_000)
	if err != nil {
		return nil, err
	}
	all := make([]uint64, n)
	for i := range all {
		all[i] = keys()
	}
	return all, nil
}

// rivals runs every limiter that this Redis can run over a trace: once with one decision for each round trip, on many
// connections, and once in pipelines, which spares Redis most of the work of the network.
func rivals(ctx context.Context, name string, all []uint64) (rows []Row, missing []error, err error) {
	redis, err := startRedis(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, redis.stop()) }()
	field, missing, err := limiter.Rivals(ctx, redis.rdb)
	if err != nil {
		return nil, nil, err
	}
	for _, l := range field {
		for _, depth := range []int{1, pipeline} {
			if err := redis.rdb.FlushDB(ctx).Err(); err != nil {
				return nil, nil, fmt.Errorf("flushdb: %w", err)
			}
			row := Row{Way: l.Name(), Trace: name, Events: len(all)}
			if depth > 1 {
				row.Way += fmt.Sprintf(", %d per round trip", depth)
			}
			row.Work, row.PerSecond, err = redis.measure(ctx, func() error { return decide(ctx, l, all, depth) }, len(all))
			if err != nil {
				return nil, nil, err
			}
			rows = append(rows, row)
		}
	}
	return rows, missing, nil
}

const (
	pipeline = 100
	workers  = 32
)

// decide sends the trace over many connections. All events of a key take the same one, in order.
func decide(ctx context.Context, l *limiter.Scripted, all []uint64, depth int) error {
	var wg sync.WaitGroup
	errs := make([]error, workers)
	for w := range workers {
		wg.Go(func() { errs[w] = decideShare(ctx, l, all, uint64(w), depth) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func decideShare(ctx context.Context, l *limiter.Scripted, all []uint64, worker uint64, depth int) (err error) {
	var calls []limiter.Call
	for i, key := range all {
		if key%workers == worker {
			check := limiter.Check{Key: load.Key(key), N: 1, Limits: rules}
			calls = append(calls, limiter.Call{Checks: []limiter.Check{check}, TS: time.Now().UnixMilli()})
		}
		if len(calls) < depth && (i < len(all)-1 || len(calls) == 0) {
			continue
		}
		if depth == 1 {
			_, err = l.AcquireAll(ctx, calls[0].Checks, calls[0].TS)
		} else {
			_, err = l.AcquireEach(ctx, calls)
		}
		if err != nil {
			return err
		}
		calls = calls[:0]
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier/bench/limiter"
	"twotier/bench/load"
	"twotier/bench/proc"
)

// redisServer is a Redis and a connection to it.
type redisServer struct {
	server *proc.Redis
	rdb    *redis.Client
}

func startRedis(ctx context.Context) (*redisServer, error) {
	server, err := proc.StartRedis(ctx)
	if err != nil {
		return nil, err
	}
	return &redisServer{server, limiter.Connect(server.Addr, workers)}, nil
}

func (r *redisServer) stop() error { return errors.Join(r.rdb.Close(), r.server.Stop()) }

// measure returns what Redis did while fn handled a number of events, and how many went through in a second.
func (r *redisServer) measure(ctx context.Context, fn func() error, events int) (Work, float64, error) {
	before, err := workOf(ctx, r.rdb)
	if err != nil {
		return Work{}, 0, err
	}
	start := time.Now()
	if err := fn(); err != nil {
		return Work{}, 0, err
	}
	took := time.Since(start)
	after, err := workOf(ctx, r.rdb)
	return after.since(before), float64(events) / took.Seconds(), err
}

// twotier sends a trace through twotier at a rate, as adds or as acquires under the rules of the rivals, and measures until
// Redis has everything.
func twotier(ctx context.Context, op, name string, all []uint64, rate float64) (row Row, err error) {
	s, err := startStack(ctx)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	way := map[string]string{load.OpBatch: "twotier, add", load.OpBatchAcquire: "twotier, acquire"}[op]
	row = Row{Way: way, Trace: name, Events: len(all)}
	r := &redisServer{s.redis, s.rdb}
	row.Work, row.PerSecond, err = r.measure(ctx, func() error {
		return errors.Join(s.send(ctx, op, all, rate), s.drain(ctx))
	}, len(all))
	return row, err
}

// send sends a trace in order, in batches that are due at a fixed rate.
func (s *stack) send(ctx context.Context, op string, all []uint64, rate float64) error {
	const perCall = 500
	conn, err := load.Dial(s.twotier.Addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	request := load.NewRequest(s.twotier.Addr, op, perCall, false)
	start := time.Now()
	for sent := 0; sent+perCall <= len(all) && ctx.Err() == nil; sent += perCall {
		for i, key := range all[sent : sent+perCall] {
			request.SetKey(i, key)
		}
		time.Sleep(time.Until(start.Add(time.Duration(float64(sent) / rate * float64(time.Second)))))
		if err := conn.Do(request); err != nil {
			return fmt.Errorf("event %d: %w", sent, err)
		}
	}
	return ctx.Err()
}

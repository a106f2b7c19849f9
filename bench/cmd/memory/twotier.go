package main

import (
	"context"
	"errors"
	"time"

	"twotier/bench/limiter"
	"twotier/bench/load"
	"twotier/bench/proc"
)

// twotier measures a shape in twotier and in the Redis beneath it.
func twotier(ctx context.Context, sh shape) (row Row, err error) {
	redis, err := proc.StartRedis(ctx)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, redis.Stop()) }()
	server, err := proc.StartTwotier(ctx, "--redis", "redis://"+redis.Addr, "--max-memory", "8GiB")
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	rdb := limiter.Connect(redis.Addr, 2)
	defer func() { err = errors.Join(err, rdb.Close()) }()
	row = Row{Way: "twotier", Shape: sh.name, Keys: sh.keys, Events: len(sh.ages)}
	before, err := usedMemory(ctx, rdb)
	if err != nil {
		return row, err
	}
	own, err := sizeOf(ctx, server)
	if err != nil {
		return row, err
	}
	if err := errors.Join(fillHTTP(ctx, server, sh), awaitPending(ctx, server, 0)); err != nil {
		return row, err
	}
	if err := row.redis(ctx, rdb, before); err != nil {
		return row, err
	}
	full, err := sizeOf(ctx, server)
	row.Counted = (full.counted - own.counted) / float64(sh.keys)
	row.Resident = (full.resident - own.resident) / float64(sh.keys)
	return row, err
}

type size struct{ counted, resident float64 }

func sizeOf(ctx context.Context, server *proc.Server) (size, error) {
	counted, err1 := server.Metric(ctx, "twotier_memory_bytes")
	resident, err2 := server.RSS()
	return size{counted, float64(resident)}, errors.Join(err1, err2)
}

// backlog is the most that is pending when the next age is counted: the replay is faster than the day was, and Redis would
// be left with all of it at the end.
const backlog = 200_000

// fillHTTP counts the events of a shape in batches, in the order of time.
func fillHTTP(ctx context.Context, server *proc.Server, sh shape) error {
	perCall := min(1000, sh.keys)
	conn, err := load.Dial(server.Addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	request := load.NewRequest(server.Addr, load.OpBatch, perCall, true)
	now := time.Now()
	for _, age := range sh.ages {
		for key := 0; key+perCall <= sh.keys && ctx.Err() == nil; key += perCall {
			for i := range perCall {
				request.SetKey(i, uint64(key+i))
				request.SetTime(i, now.Add(-age).UnixMilli())
			}
			if err := conn.Do(request); err != nil {
				return err
			}
		}
		if err := awaitPending(ctx, server, backlog); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// awaitPending waits until no more than some buckets wait for Redis, for two minutes at most.
func awaitPending(ctx context.Context, server *proc.Server, most float64) error {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		pending, err := server.Metric(ctx, "twotier_pending_buckets")
		if err != nil || pending <= most {
			return err
		}
	}
	return errors.New("still pending after two minutes")
}

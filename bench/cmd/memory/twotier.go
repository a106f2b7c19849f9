package main

import (
	"context"
	"errors"
	"time"

	"twotier/bench/load"
	"twotier/bench/measure"
	"twotier/bench/proc"
	"twotier/bench/rival"
)

// twotier measures a shape in twotier and in the Redis beneath it.
func twotier(ctx context.Context, env *rival.Env, sh shape) (row Row, err error) {
	s, err := rival.Twotier("twotier", 1, rival.TwoTier, "--max-memory", "8GiB").Start(ctx, env)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	row = Row{Way: "twotier", Shape: sh.name, Keys: sh.keys, Events: len(sh.ages)}
	before, err := measure.MemoryOf(ctx, s)
	if err != nil {
		return row, err
	}
	if err := errors.Join(fillHTTP(ctx, s.Servers[0], sh), s.Drain(ctx)); err != nil {
		return row, err
	}
	if err := row.redis(ctx, s.RDB, before.Redis); err != nil {
		return row, err
	}
	after, err := measure.MemoryOf(ctx, s)
	m := after.Since(before)
	row.Counted, row.Resident = float64(m.Counted)/float64(sh.keys), float64(m.Service)/float64(sh.keys)
	return row, err
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
		if err := server.Await(ctx, "twotier_pending_buckets", func(v float64) bool { return v <= backlog }); err != nil {
			return err
		}
	}
	return ctx.Err()
}

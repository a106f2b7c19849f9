package limiter

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// ZSetPipe is the sorted set without a script, in its most common form: one MULTI that adds the
// event before it counts, and a second round trip that takes the event back if a window is now too
// full. It never admits too many, but events that are about to be taken back can cause others to be
// refused.
type ZSetPipe struct {
	rdb     *redis.Client
	process string
	calls   atomic.Int64
}

// NewZSetPipe returns the log of timestamps in a sorted set, by pipeline.
func NewZSetPipe(rdb *redis.Client) *ZSetPipe {
	return &ZSetPipe{rdb: rdb, process: rand.Text()[:8]}
}

// Name returns the name in tables.
func (z *ZSetPipe) Name() string { return "zset log, pipeline" }

// Decide takes one or two round trips for each decision.
func (z *ZSetPipe) Decide(ctx context.Context, calls []Call) (int, error) {
	return oneByOne(calls, func(c Call) (bool, error) { return z.decide(ctx, c.Checks, c.TS) })
}

// decide adds the events, counts, and takes the events back if a limit is exceeded.
func (z *ZSetPipe) decide(ctx context.Context, checks []Check, ts int64) (bool, error) {
	id := z.process + strconv.FormatInt(z.calls.Add(1), 36)
	tx := z.rdb.TxPipeline()
	var held []*redis.IntCmd
	for _, c := range checks {
		key, life := "p:"+string(c.Key), longest(c.Limits)
		tx.ZRemRangeByScore(ctx, key, "-inf", strconv.FormatInt(ts-life, 10))
		tx.ZAdd(ctx, key, members(id, c.N, ts)...)
		for _, l := range c.Limits {
			held = append(held, tx.ZCount(ctx, key, "("+strconv.FormatInt(ts-l.Window, 10), "+inf"))
		}
		tx.Do(ctx, "PEXPIRE", key, life)
	}
	if _, err := tx.Exec(ctx); err != nil {
		return false, fmt.Errorf("zset pipeline: %w", err)
	}
	if fits(checks, held) {
		return true, nil
	}
	return false, z.takeBack(ctx, checks, id, ts)
}

func members(id string, n, ts int64) []redis.Z {
	all := make([]redis.Z, n)
	for e := range all {
		all[e] = redis.Z{Score: float64(ts), Member: id + ":" + strconv.Itoa(e)}
	}
	return all
}

// fits reports whether every rule holds with the event included.
func fits(checks []Check, held []*redis.IntCmd) bool {
	i := 0
	for _, c := range checks {
		for _, l := range c.Limits {
			if held[i].Val() > l.Max {
				return false
			}
			i++
		}
	}
	return true
}

func (z *ZSetPipe) takeBack(ctx context.Context, checks []Check, id string, ts int64) error {
	pipe := z.rdb.Pipeline()
	for _, c := range checks {
		var names []any
		for _, m := range members(id, c.N, ts) {
			names = append(names, m.Member)
		}
		pipe.ZRem(ctx, "p:"+string(c.Key), names...)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("zset pipeline: take back: %w", err)
	}
	return nil
}

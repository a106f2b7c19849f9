package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier/bench/limiter"
	"twotier/bench/load"
	"twotier/bench/measure"
	"twotier/bench/proc"
)

// Row is the memory of one way of counting for one shape. Bytes are for each key.
type Row struct {
	Way    string `json:"way"`
	Shape  string `json:"shape"`
	Keys   int    `json:"keys"`
	Events int    `json:"events_per_key"`
	// Redis is the growth of Redis's used_memory; RedisKeys how many keys there were for each of ours.
	Redis     float64 `json:"redis_bytes_per_key"`
	RedisKeys float64 `json:"redis_keys_per_key"`
	// Counted is the growth of twotier_memory_bytes, Resident that of the process's memory in RAM. 0 for the others.
	Counted  float64 `json:"twotier_bytes_per_key,omitempty"`
	Resident float64 `json:"twotier_rss_per_key,omitempty"`
}

// rules have room for everything: all is counted, for windows that cover what twotier's ladder does.
var rules = []limiter.Limit{{Window: 60_000, Max: 1 << 30}, {Window: 3_600_000, Max: 1 << 30}, {Window: 86_400_000, Max: 1 << 30}}

// rivals measures every limiter that this Redis can run.
func rivals(ctx context.Context, sh shape) (rows []Row, missing []error, err error) {
	server, err := proc.StartRedis(ctx)
	if err != nil {
		return nil, nil, err
	}
	rdb := limiter.Connect(server.Addr, workers)
	defer func() { err = errors.Join(err, rdb.Close(), server.Stop()) }()
	field, missing, err := limiter.Rivals(ctx, rdb)
	if err != nil {
		return nil, nil, err
	}
	// What Redis spends on its connections is spent before anything is measured.
	if err := fill(ctx, field[0], shape{rivalKeys: workers * pipeline, ages: make([]time.Duration, 1)}); err != nil {
		return nil, nil, err
	}
	for _, l := range field {
		if err := rdb.FlushDB(ctx).Err(); err != nil {
			return nil, nil, fmt.Errorf("flushdb: %w", err)
		}
		log.Printf("%s: %s", sh.name, l.Name())
		row := Row{Way: l.Name(), Shape: sh.name, Keys: sh.rivalKeys, Events: len(sh.ages)}
		before, err := measure.UsedMemory(ctx, rdb)
		if err != nil {
			return nil, nil, err
		}
		if err := errors.Join(fill(ctx, l, sh), dropPassedWindows(ctx, rdb, time.Now().UnixMilli())); err != nil {
			return nil, nil, err
		}
		if err := row.redis(ctx, rdb, before); err != nil {
			return nil, nil, err
		}
		rows = append(rows, row)
	}
	return rows, missing, nil
}

// redis notes what Redis holds.
func (r *Row) redis(ctx context.Context, rdb *redis.Client, before int64) error {
	after, err := measure.UsedMemory(ctx, rdb)
	if err != nil {
		return err
	}
	keys, err := rdb.DBSize(ctx).Result()
	if err != nil {
		return fmt.Errorf("dbsize: %w", err)
	}
	r.Redis = float64(after-before) / float64(r.Keys)
	r.RedisKeys = float64(keys) / float64(r.Keys)
	return nil
}

const (
	workers  = 8
	pipeline = 100
)

// fill counts the events of a shape, in the order of time for each key.
func fill(ctx context.Context, l *limiter.Scripted, sh shape) error {
	now := time.Now()
	var wg sync.WaitGroup
	errs := make([]error, workers)
	for w := range workers {
		wg.Go(func() {
			for _, age := range sh.ages {
				if errs[w] == nil {
					errs[w] = fillShare(ctx, l, sh.rivalKeys, w, now.Add(-age).UnixMilli())
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func fillShare(ctx context.Context, l *limiter.Scripted, keys, worker int, ts int64) error {
	calls := make([]limiter.Call, 0, pipeline)
	for key := worker; key < keys; key += workers {
		check := limiter.Check{Key: load.Key(uint64(key)), N: 1, Limits: rules}
		calls = append(calls, limiter.Call{Checks: []limiter.Check{check}, TS: ts})
		if len(calls) < pipeline && key+workers < keys {
			continue
		}
		if _, err := l.AcquireEach(ctx, calls); err != nil {
			return err
		}
		calls = calls[:0]
	}
	return nil
}

// fixedWindow is the name of a counter of the fixed windows: its window and index.
var fixedWindow = regexp.MustCompile(`^i:.*:(\d+):(\d+)$`)

// dropPassedWindows deletes the counters of fixed windows that are over. They would have expired, had the time between
// the events passed in earnest; all others keep one key and drop what has expired when they write.
func dropPassedWindows(ctx context.Context, rdb *redis.Client, now int64) error {
	scan := rdb.Scan(ctx, 0, "i:*", 1000).Iterator()
	var passed []string
	for scan.Next(ctx) {
		m := fixedWindow.FindStringSubmatch(scan.Val())
		if m == nil {
			continue
		}
		window, _ := strconv.ParseInt(m[1], 10, 64)
		index, _ := strconv.ParseInt(m[2], 10, 64)
		if (index+1)*window <= now {
			passed = append(passed, scan.Val())
		}
		if len(passed) == 1000 {
			if err := rdb.Del(ctx, passed...).Err(); err != nil {
				return fmt.Errorf("del: %w", err)
			}
			passed = passed[:0]
		}
	}
	if err := scan.Err(); err != nil || len(passed) == 0 {
		return err
	}
	return rdb.Del(ctx, passed...).Err()
}

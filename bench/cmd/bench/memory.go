package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/limiter"
	"twotier.dev/twotier/bench/rival"
)

// Memory measures what a key costs: bytes in Redis, for twotier and for the limiters that live
// there, and bytes in twotier's own memory. It also fills a counter in this process with ten
// million keys and measures for how long garbage collection stops the program.
type Memory struct {
	One       int `help:"Keys with one event." default:"1000000"`
	Thirty    int `help:"Keys with thirty events." default:"100000"`
	Every     int `help:"Keys with every bucket live." default:"20000"`
	PauseKeys int `help:"Keys of the process whose pauses are timed." default:"10000000"`
	Cycles    int `help:"Garbage collections to time." default:"100"`
}

// MemoryResult is what is written.
type MemoryResult struct {
	Rows   []MemoryRow `json:"rows"`
	Pauses Pauses      `json:"pauses"`
	// Missing are the limiters that can't run here, and why.
	Missing []string `json:"missing,omitempty"`
}

// MemoryRow is the memory of one way of counting for one shape. Bytes are for each key.
type MemoryRow struct {
	Way    string `json:"way"`
	Shape  string `json:"shape"`
	Keys   int    `json:"keys"`
	Events int    `json:"events_per_key"`
	// Redis is the growth of Redis's used_memory; RedisKeys how many keys there were for each of
	// ours.
	Redis     float64 `json:"redis_bytes_per_key"`
	RedisKeys float64 `json:"redis_keys_per_key"`
	// Counted is the growth of twotier_memory_bytes, Resident that of the process's memory in RAM.
	// 0 for the others.
	Counted  float64 `json:"twotier_bytes_per_key,omitempty"`
	Resident float64 `json:"twotier_rss_per_key,omitempty"`
}

// Pauses is what garbage collection does to a process with many keys.
type Pauses struct {
	Keys int `json:"keys"`
	// Bytes are resident after the keys were counted, BytesPerKey what this is for each.
	Bytes       int64   `json:"resident_bytes"`
	BytesPerKey float64 `json:"resident_bytes_per_key"`
	// Cycles are the collections that were forced under load, Stops the pauses that the runtime
	// counted meanwhile.
	Cycles int    `json:"gc_cycles"`
	Stops  uint64 `json:"pauses"`
	// P50, P99 and Max are upper bounds of the pauses in microseconds: edges of the runtime's
	// histogram.
	P50 float64 `json:"p50_us"`
	P99 float64 `json:"p99_us"`
	Max float64 `json:"max_us"`
	// CycleMS is how long a collection took from begin to end on average, most of it beside the
	// program.
	CycleMS float64 `json:"cycle_ms"`
	// Adds were counted per second while the collections ran.
	Adds float64 `json:"adds_per_second"`
}

func (o *Memory) pauses(ctx context.Context) (Pauses, error) {
	m, err := measureMicro(ctx, "^BenchmarkPauses$", strconv.Itoa(o.Cycles)+"x", "-max-keys",
		strconv.Itoa(o.PauseKeys))
	of := m[fmt.Sprintf("Pauses/gc/keys=%d", o.PauseKeys)]
	return Pauses{
		Keys: o.PauseKeys, Bytes: int64(of["resident-B"]),
		BytesPerKey: of["resident-B"] / float64(o.PauseKeys),
		Cycles:      o.Cycles, Stops: uint64(of["pauses"]),
		P50: of["p50-us"], P99: of["p99-us"], Max: of["max-us"],
		CycleMS: of["ns/op"] / 1e6, Adds: of["adds/s"],
	}, err
}

// A shape is a population of keys that all have events at the same times.
type shape struct {
	name string
	// keys is how many there are, first the number of the first.
	keys  int
	first uint64
	// rivalKeys are how many of them the limiters in Redis get: bytes for each key don't depend on
	// it, and filling long logs that are read for every event takes its time.
	rivalKeys int
	// ages are how long before now each key has an event, the oldest first.
	ages []time.Duration
}

// reach is less than a day, so that filling may take a while.
const reach = 24*time.Hour - 20*time.Minute

// shapes returns the populations: one event for each key, thirty spread over a day, and one in
// every bucket.
func (o *Memory) shapes() []shape {
	var spread, all []time.Duration
	for i := range 30 {
		spread = append(spread, reach*time.Duration(30-i)/30)
	}
	for _, level := range []struct {
		width time.Duration
		count int
	}{{15 * time.Minute, 95}, {time.Minute, 60}, {time.Second, 60}} {
		for i := range level.count {
			all = append(all, min(level.width*time.Duration(i), reach))
		}
	}
	slices.Sort(all)
	slices.Reverse(all)
	return []shape{
		{name: "1 event", keys: o.One, rivalKeys: min(o.One, 200_000), ages: []time.Duration{0}},
		{name: "30 events in 24 h", keys: o.Thirty, rivalKeys: min(o.Thirty, 20_000), ages: spread},
		{name: "every bucket live", keys: o.Every, rivalKeys: min(o.Every, 1000), ages: all},
	}
}

// Run measures every way with every shape, and the pauses.
func (o *Memory) Run(ctx context.Context, b *bench) error {
	env, err := b.programs(ctx)
	if err != nil {
		return err
	}
	var r MemoryResult
	for _, sh := range o.shapes() {
		for _, name := range append([]string{"twotier"}, limiter.ScriptNames()...) {
			row, err := sh.measure(ctx, env, name)
			if errors.Is(err, limiter.ErrNotAvailable) {
				if !slices.Contains(r.Missing, err.Error()) {
					r.Missing = append(r.Missing, err.Error())
				}
				continue
			}
			if err != nil {
				return fmt.Errorf("%s: %w", sh.name, err)
			}
			log.Printf("%s: %s: %.0f bytes in Redis", sh.name, row.Way, row.Redis)
			r.Rows = append(r.Rows, row)
		}
	}
	if r.Pauses, err = o.pauses(ctx); err != nil {
		return err
	}
	return save(b, "memory", o, r)
}

// measure fills one rival with the shape.
func (sh shape) measure(
	ctx context.Context, env rival.Env, name string,
) (row MemoryRow, err error) {
	rv := rival.Twotier(name, 1, rival.TwoTier, "--max-memory", "8GiB")
	if name != "twotier" {
		some, err := rival.Select(rival.All(), []string{name})
		if err != nil {
			return row, err
		}
		rv, sh.keys = some[0], sh.rivalKeys
	}
	s, err := rv.Start(ctx, env)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	// What Redis and its connections take once is taken before anything is measured.
	warm := shape{first: 1 << 40, keys: fillers * pipelined, ages: []time.Duration{0}}
	if err := warm.fill(ctx, s); err != nil {
		return row, err
	}
	before, err1 := s.Footprint(ctx)
	first, err2 := s.RDB.DBSize(ctx).Result()
	filled := sh.fill(ctx, s)
	dropped := dropPassedWindows(ctx, s, time.Now().UnixMilli())
	if err := errors.Join(err1, err2, filled, dropped); err != nil {
		return row, err
	}
	after, err1 := s.Footprint(ctx)
	last, err2 := s.RDB.DBSize(ctx).Result()
	m, per := after.Since(before), func(v int64) float64 { return float64(v) / float64(sh.keys) }
	row = MemoryRow{
		Way: s.Name(), Shape: sh.name, Keys: sh.keys, Events: len(sh.ages), Redis: per(m.Redis),
		RedisKeys: per(last - first),
	}
	if len(s.Servers) > 0 {
		row.Counted, row.Resident = per(m.Counted), per(m.Service)
	}
	return row, errors.Join(err1, err2)
}

const (
	fillers   = 8
	pipelined = 100
)

// fill counts the events of a shape, in the order of time for each key. What is pending is flushed
// before the next age: the replay is faster than the day was.
func (sh shape) fill(ctx context.Context, s *rival.Stand) error {
	now := time.Now()
	for _, age := range sh.ages {
		err := sh.fillAt(ctx, s, now.Add(-age).UnixMilli())
		if err := errors.Join(err, s.Drain(ctx), ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// fillAt counts one event of each key: a server's by adds, a limiter's in Redis by decisions.
func (sh shape) fillAt(ctx context.Context, s *rival.Stand, ts int64) error {
	if len(s.Servers) > 0 {
		return fill(s, sh.keys, sh.key, ts)
	}
	errs := make([]error, fillers)
	var wg sync.WaitGroup
	for w := range fillers {
		wg.Go(func() { errs[w] = sh.fillShare(ctx, s.Limiter, w, ts) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// key is the name of one of the shape's keys.
func (sh shape) key(i int) string { return drive.Key(sh.first + uint64(i)) }

// fillShare decides for windows that cover what twotier's ladder does, with room for all.
func (sh shape) fillShare(ctx context.Context, l limiter.Limiter, worker int, ts int64) error {
	limits := []limiter.Limit{{Window: 60_000, Max: 1 << 30}, {Window: hour, Max: 1 << 30},
		{Window: 24 * hour, Max: 1 << 30}}
	calls := make([]limiter.Call, 0, pipelined)
	for key := worker; key < sh.keys; key += fillers {
		check := limiter.Check{Key: sh.key(key), N: 1, Limits: limits}
		calls = append(calls, limiter.Call{Checks: []limiter.Check{check}, TS: ts})
		if len(calls) < pipelined && key+fillers < sh.keys {
			continue
		}
		if n, err := l.Decide(ctx, calls); err != nil || n != len(calls) {
			return fmt.Errorf("%d of %d were admitted: %w", n, len(calls), err)
		}
		calls = calls[:0]
	}
	return nil
}

// dropPassedWindows deletes the counters of fixed windows that are over: "i:KEY:WINDOW:INDEX". They
// would have expired, had the time between the events passed in earnest; all others keep one key
// and drop what has expired when they write.
func dropPassedWindows(ctx context.Context, s *rival.Stand, now int64) error {
	keys := s.RDB.Scan(ctx, 0, "i:*", 1000).Iterator()
	pipe := s.RDB.Pipeline()
	for keys.Next(ctx) {
		parts := strings.Split(keys.Val(), ":")
		window, err1 := strconv.ParseInt(parts[len(parts)-2], 10, 64)
		index, err2 := strconv.ParseInt(parts[len(parts)-1], 10, 64)
		if errors.Join(err1, err2) == nil && (index+1)*window <= now {
			pipe.Del(ctx, keys.Val())
		}
	}
	_, err := pipe.Exec(ctx)
	return errors.Join(keys.Err(), err)
}

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"twotier.dev/twotier/bench/limiter"
)

// Memory measures what a key costs: bytes in Redis, for twotier and for the limiters that live
// there, and bytes in twotier's own memory. It also fills a counter with ten million keys and
// measures for how long garbage collection stops its process.
type Memory struct {
	One       int `help:"Keys with one event." default:"1000000"`
	Thirty    int `help:"Keys with thirty events." default:"100000"`
	Every     int `help:"Keys with every bucket live." default:"20000"`
	PauseKeys int `help:"Keys of the process whose pauses are timed." default:"10000000"`
	Cycles    int `help:"Garbage collections to time." default:"100"`
}

// MemoryResult is the result of Memory.
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

// Run measures every way with every shape, and the pauses. The limiters in Redis get fewer keys:
// the bytes per key don't depend on that, and it takes long to fill logs that are read for every
// event.
func (o *Memory) Run(ctx context.Context, b *bench) (err error) {
	var r MemoryResult
	for _, s := range []struct {
		name, title    string
		keys, ofRivals int
	}{
		{"one", "1 event", o.One, 200_000}, {"thirty", "30 events in 24 h", o.Thirty, 20_000},
		{"every", "every bucket live", o.Every, 1000},
	} {
		err := r.measure(ctx, s.name, s.title, s.keys, "twotier")
		if err != nil {
			return err
		}
		err = r.measure(ctx, s.name, s.title, min(s.keys, s.ofRivals), limiter.ScriptNames()...)
		if err != nil {
			return err
		}
	}
	if r.Pauses, err = o.pauses(ctx); err != nil {
		return err
	}
	return save(b, "memory", o, r)
}

// measure fills rivals with keys of a shape.
func (r *MemoryResult) measure(ctx context.Context, shape, title string, keys int,
	names ...string) error {
	pattern := fmt.Sprintf("^BenchmarkBytes$/^%s$/^(%s)$", shape, strings.Join(names, "|"))
	m, err := measureMicro(ctx, pattern, "1x", "-keys", strconv.Itoa(keys))
	if err != nil {
		return err
	}
	for _, name := range names {
		of := m.one("Bytes/" + shape + "/" + name)
		if of == nil {
			why := fmt.Sprintf("%s: %v", name, limiter.ErrNotAvailable)
			if !slices.Contains(r.Missing, why) {
				r.Missing = append(r.Missing, why)
			}
			continue
		}
		r.Rows = append(r.Rows, MemoryRow{
			Way: name, Shape: title, Keys: keys, Events: int(of["events/key"]),
			Redis: of["redis-B/key"], RedisKeys: of["redis-keys/key"],
			Counted: of["counted-B/key"], Resident: of["resident-B/key"],
		})
	}
	return nil
}

// Pauses is the effect of garbage collection on a process with many keys.
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
	// Adds is the number of adds per second while the collections ran.
	Adds float64 `json:"adds_per_second"`
}

func (o *Memory) pauses(ctx context.Context) (Pauses, error) {
	m, err := measureMicro(ctx, "^BenchmarkPauses$", strconv.Itoa(o.Cycles)+"x", "-max-keys",
		strconv.Itoa(o.PauseKeys))
	of := m.one(fmt.Sprintf("Pauses/gc/keys=%d", o.PauseKeys))
	return Pauses{
		Keys: o.PauseKeys, Bytes: int64(of["resident-B"]),
		BytesPerKey: of["resident-B"] / float64(o.PauseKeys),
		Cycles:      o.Cycles, Stops: uint64(of["pauses"]),
		P50: of["p50-us"], P99: of["p99-us"], Max: of["max-us"],
		CycleMS: of["ns/op"] / 1e6, Adds: of["adds/s"],
	}, err
}

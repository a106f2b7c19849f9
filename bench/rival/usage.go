package rival

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"twotier.dev/twotier/bench/proc"
)

// Usage is the usage of a rival and its driver up to now, or between two moments.
type Usage struct {
	// Driver and Service are processor seconds: of this process, which is the generator and also
	// runs libraries, and of the rival's own server processes.
	Driver  float64 `json:"driver_cpu_seconds"`
	Service float64 `json:"service_cpu_seconds"`
	// Redis is the work of its Redis.
	Redis Work `json:"redis"`
	// Mallocs are the allocations in this process.
	Mallocs uint64 `json:"mallocs"`
}

// Work is the work of a Redis.
type Work struct {
	// CPU is processor time in seconds.
	CPU float64 `json:"cpu_seconds"`
	// Scripts are the calls of scripts, Commands all commands, including commands within scripts.
	// Both leave out the commands for connecting and for measuring.
	Scripts  int64 `json:"scripts"`
	Commands int64 `json:"commands"`
	// Reads is how often Redis read from a connection: round trips, where callers don't share one.
	Reads int64 `json:"reads"`
	// BytesIn and BytesOut went over its connections.
	BytesIn  int64 `json:"bytes_in"`
	BytesOut int64 `json:"bytes_out"`
}

// Usage returns the usage so far.
func (s *Stand) Usage(ctx context.Context) (u Usage, err error) {
	for _, server := range s.Servers {
		cpu, err := server.CPU()
		if err != nil {
			return u, err
		}
		u.Service += cpu
	}
	if s.RDB != nil {
		if u.Redis, err = s.work(ctx); err != nil {
			return u, err
		}
	}
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		return u, fmt.Errorf("getrusage: %w", err)
	}
	u.Driver = time.Duration(self.Utime.Nano() + self.Stime.Nano()).Seconds()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.Mallocs = m.Mallocs
	return u, nil
}

// housekeeping are commands that are not part of any rival's work.
var housekeeping = map[string]bool{
	"info": true, "config": true, "hello": true, "client": true, "ping": true,
	"flushall": true, "dbsize": true, "select": true, "auth": true, "command": true,
}

// work returns the work of Redis since its start.
func (s *Stand) work(ctx context.Context) (w Work, err error) {
	info, err := s.RDB.InfoMap(ctx, "everything").Result()
	if err != nil {
		return w, fmt.Errorf("info: %w", err)
	}
	stats := info["Stats"]
	w.CPU = number(info["CPU"]["used_cpu_user"]) + number(info["CPU"]["used_cpu_sys"])
	w.Reads = int64(number(stats["total_reads_processed"]))
	w.BytesIn = int64(number(stats["total_net_input_bytes"]))
	w.BytesOut = int64(number(stats["total_net_output_bytes"]))
	for name, value := range info["Commandstats"] { // "cmdstat_config|get": "calls=3,usec=17,..."
		name, _, _ = strings.Cut(strings.TrimPrefix(name, "cmdstat_"), "|")
		if housekeeping[name] {
			continue
		}
		first, _, _ := strings.Cut(value, ",")
		calls := int64(number(strings.TrimPrefix(first, "calls=")))
		w.Commands += calls
		if strings.HasPrefix(name, "eval") || strings.HasPrefix(name, "fcall") {
			w.Scripts += calls
		}
	}
	return w, nil
}

func number(text string) float64 {
	v, _ := strconv.ParseFloat(text, 64)
	return v
}

// Share returns the generator's part of all processor time. It is 0 if there is no service: then
// the generator runs the limiter, or its Redis client, and its own part is unknown.
func (u Usage) Share() float64 {
	if u.Service == 0 {
		return 0
	}
	return u.Driver / (u.Driver + u.Service + u.Redis.CPU)
}

// Since returns the usage since an earlier one.
func (u Usage) Since(o Usage) Usage {
	w, p := u.Redis, o.Redis
	return Usage{u.Driver - o.Driver, u.Service - o.Service, Work{
		w.CPU - p.CPU, w.Scripts - p.Scripts, w.Commands - p.Commands, w.Reads - p.Reads,
		w.BytesIn - p.BytesIn, w.BytesOut - p.BytesOut,
	}, u.Mallocs - o.Mallocs}
}

// Footprint is the memory of counts.
type Footprint struct {
	// Keys is the number of keys that the limiter's user sees. The others are bytes.
	Keys int64 `json:"keys"`
	// Service is the resident memory of the servers, of this process for a library.
	Service int64 `json:"service_bytes"`
	// Counted is the memory that twotier's servers account for their counts.
	Counted int64 `json:"counted_bytes"`
	Redis   int64 `json:"redis_bytes"`
}

// Footprint returns the memory in use now.
func (s *Stand) Footprint(ctx context.Context) (m Footprint, err error) {
	if s.heap {
		m.Service, err = Resident()
	}
	for _, server := range s.Servers {
		rss, err1 := server.RSS()
		err = errors.Join(err, err1)
		m.Service += rss
		if counted, err := server.Metric(ctx, "twotier_memory_bytes"); err == nil {
			m.Counted += int64(counted)
		}
	}
	if s.RDB != nil {
		info, err1 := s.RDB.InfoMap(ctx, "memory").Result()
		err = errors.Join(err, err1)
		m.Redis = int64(number(info["Memory"]["used_memory"]))
	}
	return m, err
}

// Since returns the growth since an earlier footprint; bytes are at least 0.
func (m Footprint) Since(o Footprint) Footprint {
	return Footprint{m.Keys - o.Keys, max(m.Service-o.Service, 0), max(m.Counted-o.Counted, 0),
		max(m.Redis-o.Redis, 0)}
}

// Resident returns the memory in bytes that this process holds in RAM, after garbage has been
// returned to the system: the heap and other mappings.
func Resident() (int64, error) {
	// FreeOSMemory collects again, and frees the memory that finalizers and pools still hold.
	runtime.GC()
	debug.FreeOSMemory()
	return proc.RSS(os.Getpid())
}

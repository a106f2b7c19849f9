package measure

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Work is what a Redis has done.
type Work struct {
	// CPU is processor time in seconds.
	CPU float64 `json:"cpu_seconds"`
	// Scripts are the calls of scripts, Commands all commands, those within scripts included. Both leave out what it
	// takes to connect and to ask for this.
	Scripts  int64 `json:"scripts"`
	Commands int64 `json:"commands"`
	// Reads are how often Redis read from a connection: round trips, where callers don't share one.
	Reads int64 `json:"reads"`
	// BytesIn and BytesOut went over its connections.
	BytesIn  int64 `json:"bytes_in"`
	BytesOut int64 `json:"bytes_out"`
}

// housekeeping are commands that are not part of anybody's work.
var housekeeping = []string{"info", "config", "hello", "client", "ping", "flushall", "dbsize", "select", "auth", "command"}

// RedisWork asks a Redis what it has done since it was started.
func RedisWork(ctx context.Context, rdb *redis.Client) (w Work, err error) {
	text, err := rdb.Info(ctx, "everything").Result()
	if err != nil {
		return w, fmt.Errorf("info: %w", err)
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case name == "used_cpu_user" || name == "used_cpu_sys":
			seconds, _ := strconv.ParseFloat(value, 64)
			w.CPU += seconds
		case name == "total_reads_processed":
			w.Reads, _ = strconv.ParseInt(value, 10, 64)
		case name == "total_net_input_bytes":
			w.BytesIn, _ = strconv.ParseInt(value, 10, 64)
		case name == "total_net_output_bytes":
			w.BytesOut, _ = strconv.ParseInt(value, 10, 64)
		case strings.HasPrefix(name, "cmdstat_"):
			w.command(strings.TrimPrefix(name, "cmdstat_"), value)
		}
	}
	return w, nil
}

// command counts one line of commandstats: "calls=3,usec=17,..." for "config|get".
func (w *Work) command(name, value string) {
	name, _, _ = strings.Cut(name, "|")
	for _, h := range housekeeping {
		if name == h {
			return
		}
	}
	first, _, _ := strings.Cut(value, ",")
	calls, _ := strconv.ParseInt(strings.TrimPrefix(first, "calls="), 10, 64)
	w.Commands += calls
	if strings.HasPrefix(name, "eval") || strings.HasPrefix(name, "fcall") {
		w.Scripts += calls
	}
}

// Since is what was done after an earlier answer.
func (w Work) Since(o Work) Work {
	return Work{
		CPU: w.CPU - o.CPU, Scripts: w.Scripts - o.Scripts, Commands: w.Commands - o.Commands, Reads: w.Reads - o.Reads,
		BytesIn: w.BytesIn - o.BytesIn, BytesOut: w.BytesOut - o.BytesOut,
	}
}

// UsedMemory is what Redis has allocated, in bytes.
func UsedMemory(ctx context.Context, rdb *redis.Client) (int64, error) {
	text, err := rdb.Info(ctx, "memory").Result()
	if err != nil {
		return 0, fmt.Errorf("info: %w", err)
	}
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, "used_memory:"); ok {
			return strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		}
	}
	return 0, errors.New("info: no used_memory")
}

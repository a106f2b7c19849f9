package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// All runs every command in order, each in a separate process, so that none measures the memory of
// another. If one fails, it continues with the next.
type All struct {
	Quick bool     `help:"Check in a few minutes that everything works; results go to OUT/quick."`
	Parts []string `help:"Commands to run; default: all."`
}

// A step is a command with a result of the same name.
type step struct {
	name, help string
	command    any
	// defaults are the values of flags that commands of one type share. quick are the arguments of
	// the quick form.
	defaults map[string]string
	quick    string
}

// tags returns the defaults in kong's form.
func (s step) tags() (tags []string) {
	for name, value := range s.defaults {
		tags = append(tags, fmt.Sprintf("set:%q", name+"="+value))
	}
	return tags
}

// steps can also be run by hand: each result names its command. They are ordered by interest, with
// the longest last. The report uses all results that exist, whether measured now or before.
func steps() []step {
	type flags = map[string]string
	return []step{
		{"micro", "Run the Go benchmarks of single parts.", &Benchmarks{},
			flags{"bench": "LeapArray|AddByKey=1s", "count": "3", "sizes": ""},
			"--count=1 --bench=LeapArray|AddByKey=100ms"},
		{"compare", "Drive every limiter through the same workloads.", &Compare{},
			flags{"rivals": "", "workloads": "hot,zipf,distinct,diurnal", "rules": "2",
				"duration": "1500ms", "rate": "5000"},
			"--duration=150ms --workloads=hot,zipf,distinct " +
				"--rivals=nothing,hash-lua*,redis-rate,gubernator-1,twotier-lib,twotier"},
		{"http", "Compare POST /v1/add with a server that does nothing.", &Benchmarks{},
			flags{"bench": "HTTP=1x", "count": "3", "sizes": "duration=2s"},
			"--count=1 --sizes=duration=200ms"},
		{"resp", "Drive the commands for Redis clients, a script in Redis and INCR.", &Resp{}, nil,
			"--requests=20000 --keys=1000 --count=1"},
		{"envoy", "Compare Envoy's rate limit service with envoyproxy/ratelimit.", &Benchmarks{},
			flags{"bench": "Envoy=1x", "count": "3", "sizes": "duration=5s," +
				"ratelimit=v1.4.1-0.20260122083618-3fb702589d36"},
			"--count=1 --sizes=duration=500ms"},
		{"forward", "Measure the cost of forwarding to the owner of a key.", &Benchmarks{},
			flags{"bench": "Forward=1s", "count": "3", "sizes": ""},
			"--count=1 --bench=Forward=200ms"},
		{"hot", "Measure a limit that all users share.", &Benchmarks{},
			flags{"bench": "Hot=1x,Early=1x", "count": "1", "sizes": "duration=60s"},
			"--sizes=duration=2s"},
		{"decisions", "Judge decisions by an exact log of admissions.", &Decisions{}, nil,
			"--receivers=20 --live=3s"},
		{"accuracy", "Compare ways of counting a window with exact counts.", &Accuracy{}, nil,
			"--length=1h --questions=100"},
		{"interval", "Measure the trade-offs of the flush interval.", &Benchmarks{},
			flags{"bench": "Flush=1x,Shared=25x,Steady=4x", "count": "1",
				"sizes": "duration=5s,rate=50000"},
			"--bench=Flush=1x,Shared=5x,Steady=4x --sizes=duration=500ms,rate=10000"},
		{"quietflush", "Compare latencies with and without a flush.", &Benchmarks{},
			flags{"bench": "QuietFlush=1x", "count": "3", "sizes": "duration=10s"},
			"--count=1 --sizes=duration=300ms"},
		{"loss", "Measure the losses of kill -9.", &Benchmarks{},
			flags{"bench": "Kill=1x", "count": "3", "sizes": "duration=2s,rate=20000"},
			"--count=1 --sizes=duration=500ms,rate=5000"},
		{"growth", "Measure how costs grow with the number of keys.", &Benchmarks{},
			flags{"bench": "Keys=1s,Cold=500000x", "count": "1",
				"sizes": "duration=1s,max-keys=10000000"},
			"--bench=Keys=100ms,Cold=50000x --sizes=duration=100ms,max-keys=100000"},
		{"rules", "Drive limiters under one to four rules.", &Compare{},
			flags{"rivals": "zset-lua,hash-lua,redis-rate,twotier-lib,twotier,twotier-redis-mode",
				"workloads": "zipf", "rules": "1,2,3,4", "duration": "1s", "rate": "0"},
			"--rivals=hash-lua,twotier-lib --duration=100ms"},
		{"nodes", "Drive clusters of one to five nodes.", &Compare{},
			flags{"rivals": "twotier,twotier-2,twotier-3,twotier-4,twotier-5,twotier-tagged*",
				"workloads": "zipf,messages", "rules": "2", "duration": "1s", "rate": "0"},
			"--rivals=twotier,twotier-2,twotier-tagged-2 --duration=200ms"},
		{"memory", "Measure the memory of a key, and pauses of garbage collection.", &Benchmarks{},
			flags{"bench": "Bytes=1x,Pauses=50x", "count": "1",
				"sizes": "one=1000000,thirty=100000,every=20000,max-keys=10000000"},
			"--bench=Bytes=1x,Pauses=20x --sizes=one=20000,thirty=2000,every=50,max-keys=500000"},
		{"messages-known", "Drive message control with known users.", &Control{},
			flags{"rivals": "twotier-tagged-1", "users": "10000", "limits": "given,ample",
				"warmup": "5s", "duration": "10s", "count": "3"},
			"--count=1 --warmup=200ms --duration=500ms"},
		{"messages-nodes", "Drive message control at three nodes and at one.", &Control{},
			flags{"rivals": "twotier-tagged-1,twotier-tagged-3", "users": "10000",
				"limits": "given,ample", "warmup": "5s", "duration": "10s", "count": "3"},
			"--count=1 --warmup=200ms --duration=500ms"},
		{"messages-new", "Drive message control with new users for a minute.", &Control{},
			flags{"rivals": "twotier-tagged-1", "users": "0", "limits": "given", "warmup": "0s",
				"duration": "60s", "count": "1"},
			"--duration=1s"},
		{"messages", "Search for the highest rate of message control.", &Messages{}, nil,
			"--rivals=twotier --probe=200ms --hold=1s --at-target=1s"},
		{"report", "Make one page of all results.", &Report{}, nil, ""},
	}
}

// longest is well above the duration of any step, so that a step that hangs does not block the
// others.
const longest = 15 * time.Minute

// Run runs the requested parts and the report.
func (o *All) Run(ctx context.Context, b *bench) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("all: %w", err)
	}
	out := b.out
	if o.Quick {
		out += "/quick"
	}
	var errs []error
	for _, s := range steps() {
		if ctx.Err() != nil || len(o.Parts) > 0 && s.name != "report" &&
			!slices.Contains(o.Parts, s.name) {
			continue
		}
		args := ""
		if o.Quick {
			args = s.quick
		}
		log.Printf("%s %s", s.name, args)
		start := time.Now()
		limited, cancel := context.WithTimeout(ctx, longest)
		words := append([]string{s.name, "--out=" + out}, strings.Fields(args)...)
		cmd := attached(exec.CommandContext(limited, self, words...), os.Stdout)
		if err := cmd.Run(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
		}
		cancel()
		log.Printf("%s took %v", s.name, time.Since(start).Round(time.Second))
	}
	return errors.Join(errs...)
}

// attached makes a command write to this command's output and end with the context.
func attached(cmd *exec.Cmd, stdout io.Writer) *exec.Cmd {
	cmd.Stdout, cmd.Stderr = stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	return cmd
}

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"twotier/bench/report"
)

// A step is a command below cmd and its arguments in the long and the quick form.
type step struct{ name, long, quick string }

// steps are also those to be given by hand: each result names its own command. The order is from what is looked at first to
// what takes longest; report and plan are made of what there is, whether measured now or before.
func steps() []step {
	return []step{
		{"compare", "-duration 1500ms",
			"-duration 150ms -workloads hot,zipf,distinct -rivals nothing,hash-lua*,redis-rate,gubernator-1,twotier-lib,twotier"},
		{"http", "-duration 2s -rounds 3", "-rounds 1 -duration 200ms"},
		{"forward", "", "-rounds 1 -duration 200ms"},
		{"decisions", "", "-receivers 20 -live 3s"},
		{"interval", "-samples 25", "-intervals 10ms,200ms -rate 10000 -duration 1s -samples 5 -steady 2s"},
		{"loss", "", "-rounds 1 -rate 5000 -before 500ms"},
		{"growth", "-duration 1s", "-parts keys,nodes -max-keys 100000 -nodes 2 -duration 200ms"},
		{"memory", "-cycles 50", "-one 20000 -thirty 2000 -every 50 -pause-keys 500000 -cycles 20"},
		{"messages", "-probe 1s -hold 15s", "-rivals twotier -probe 200ms -hold 1s -at-target 1s"},
	}
}

func main() {
	quick := flag.Bool("quick", false, "take about a minute")
	parts := flag.String("parts", "",
		"`names` with commas, all if empty: micro, compare, http, forward, decisions, interval, loss, growth, memory, messages")
	out := flag.String("out", "", "`directory` of the results; results, or results/quick")
	flag.Parse()
	if *out == "" {
		*out = "results"
		if *quick {
			*out = filepath.Join("results", "quick")
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *quick, *parts, *out); err != nil {
		log.Fatal(err)
	}
}

// run goes on after a step that fails.
func run(ctx context.Context, quick bool, parts, out string) error {
	wanted := func(name string) bool {
		return ctx.Err() == nil && (parts == "" || slices.Contains(strings.Split(parts, ","), name))
	}
	var errs []error
	if wanted("micro") {
		errs = append(errs, micro(ctx, quick, out))
	}
	for _, s := range steps() {
		args := s.long
		if quick {
			args = s.quick
		}
		if wanted(s.name) {
			errs = append(errs, s.run(ctx, args, out))
		}
	}
	for _, s := range []step{{name: "report"}, {name: "plan"}} {
		if ctx.Err() == nil {
			errs = append(errs, s.run(ctx, "", out))
		}
	}
	return errors.Join(errs...)
}

// longest is well above what any step takes: one that hangs does not take the others with it.
const longest = 15 * time.Minute

// run builds the command first, so that a signal reaches it and not the go tool above it.
func (s step) run(ctx context.Context, args, out string) error {
	dir, err := os.MkdirTemp("", "bench-all")
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	defer os.RemoveAll(dir)
	bin := filepath.Join(dir, s.name)
	if err := attached(exec.CommandContext(ctx, "go", "build", "-o", bin, "./cmd/"+s.name), os.Stdout).Run(); err != nil {
		return fmt.Errorf("%s: build: %w", s.name, err)
	}
	log.Printf("%s %s", s.name, args)
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	cmd := attached(exec.CommandContext(ctx, bin, append(strings.Fields(args), "-out", out)...), os.Stdout)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	log.Printf("%s took %v", s.name, time.Since(start).Round(time.Second))
	return nil
}

// micro runs the Go benchmarks and keeps what they print, which benchstat reads.
func micro(ctx context.Context, quick bool, out string) error {
	args := []string{"test", "-run", "^$", "-bench", ".", "-benchtime", "1s", "-count", "3", "."}
	if quick {
		args = []string{"test", "-run", "^$", "-bench", ".", "-benchtime", "100ms", "."}
	}
	log.Print("go ", strings.Join(args, " "))
	var text bytes.Buffer
	if err := attached(exec.CommandContext(ctx, "go", args...), io.MultiWriter(os.Stdout, &text)).Run(); err != nil {
		return fmt.Errorf("micro: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	return report.Report{
		Name: "micro", Title: "The parts by themselves", Command: "go " + strings.Join(args, " "),
		Data: lines, Body: microText + "```\n" + text.String() + "```\n",
	}.Write(ctx, out)
}

const microText = `LeapArray: Sentinel's array guards itself and reads the clock; ours leaves both to its user, who locks and reads the clock once
for many: ` + "`locked-with-clock` and `Parallel`" + ` do both on every call.
Both have 60 buckets of 1 s, and every one is read; ` + "`3-levels`" + ` is twotier's default, which writes three.

AddByKey: keys drawn evenly from a million that live, on all cores. The floor is a map of counts under mutexes and
nothing else. ` + "`syncer`" + ` is the add by itself, ` + "`flushing`" + ` also hands everything to a store that costs nothing every 200 ms,
` + "`embedded`" + ` to the one that keeps it in the same process.

`

// attached lets a command write where this one does, and end when the context does.
func attached(cmd *exec.Cmd, stdout io.Writer) *exec.Cmd {
	cmd.Stdout, cmd.Stderr = stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	return cmd
}

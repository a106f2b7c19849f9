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
	"strings"
	"syscall"
	"time"

	"twotier/bench/report"
)

// A step is a command below cmd and its arguments in the long and the quick form.
type step struct{ name, long, quick string }

// The arguments are also those to be given by hand: each report names its own.
var steps = []step{
	{"decisions", "", "-receivers 40"},
	{"http", "-duration 3s -rounds 5", "-rounds 1 -duration 1s"},
	{"flush", "", "-duration 4s -events 20000"},
	{"memory", "", "-one 20000 -thirty 2000 -every 50 -pause-keys 500000 -cycles 20"},
}

func main() {
	quick := flag.Bool("quick", false, "take about a minute")
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
	if err := run(ctx, *quick, *out); err != nil {
		log.Fatal(err)
	}
}

// run goes on after a step that fails.
func run(ctx context.Context, quick bool, out string) error {
	errs := []error{micro(ctx, quick, out)}
	for _, s := range steps {
		args := s.long
		if quick {
			args = s.quick
		}
		if ctx.Err() == nil {
			errs = append(errs, s.run(ctx, args, out))
		}
	}
	return errors.Join(errs...)
}

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

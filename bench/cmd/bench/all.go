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

// All runs every command in order, each in a process of its own, so that none measures what another
// has left in memory. If one fails, it continues with the next.
type All struct {
	Quick bool     `help:"Show that all works in a few minutes, in OUT/quick."`
	Parts []string `help:"Names of the commands to run; all if there are none."`
}

// A step is a command and its arguments in the long and the quick form.
type step struct{ name, long, quick string }

// steps can also be run by hand: each result names its command. They are ordered by interest, with
// the longest last. The report uses all results that exist, whether measured now or before.
func steps() []step {
	return []step{
		{"micro", "", "--count=1 --time=100ms"},
		{"compare", "--duration=1500ms", "--duration=150ms --workloads=hot,zipf,distinct " +
			"--rivals=nothing,hash-lua*,redis-rate,gubernator-1,twotier-lib,twotier"},
		{"http", "--duration=2s --rounds=3", "--rounds=1 --duration=200ms"},
		{"forward", "", "--rounds=1 --duration=200ms"},
		{"decisions", "", "--receivers=20 --live=3s"},
		{"interval", "--samples=25", "--intervals=10ms,200ms --rate=10000 --duration=1s " +
			"--samples=5 --steady=2s"},
		{"loss", "", "--rounds=1 --rate=5000 --before=500ms"},
		{"growth", "--duration=1s", "--parts=keys,nodes --max-keys=100000 --nodes=2 " +
			"--duration=200ms"},
		{"memory", "--cycles=50", "--one=20000 --thirty=2000 --every=50 --pause-keys=500000 " +
			"--cycles=20"},
		{"messages", "--probe=1s --hold=15s",
			"--rivals=twotier --probe=200ms --hold=1s --at-target=1s"},
		{"report", "", ""},
	}
}

// longest is well above what any step takes, so that a step that hangs does not block the others.
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
		args := s.long
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

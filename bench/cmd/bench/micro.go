package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
)

// Micro runs the Go benchmarks of the parts by themselves and keeps what they print, which
// benchstat reads.
type Micro struct {
	Time  string `help:"Of each benchmark, as go test takes it." default:"1s"`
	Count int    `help:"Times each is run." default:"3"`
}

// Run runs them.
func (o *Micro) Run(ctx context.Context, b *bench) error {
	lines, err := goBenchmarks(ctx, "LeapArray|AddByKey", "-benchtime", o.Time, "-count",
		strconv.Itoa(o.Count))
	if err != nil {
		return err
	}
	return save(b, "micro", nil, lines)
}

// goBenchmarks runs the benchmarks of package micro whose names match, and returns the lines that
// they print.
func goBenchmarks(ctx context.Context, pattern string, args ...string) ([]string, error) {
	words := append([]string{"test", "twotier.dev/twotier/bench/micro", "-vet", "off", "-run", "^$",
		"-timeout", "1h", "-bench", pattern}, args...)
	var text bytes.Buffer
	cmd := attached(exec.CommandContext(ctx, "go", words...), io.MultiWriter(os.Stderr, &text))
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go test -bench %s: %w", pattern, err)
	}
	return strings.Split(strings.TrimSpace(text.String()), "\n"), nil
}

// readings are what Go benchmarks have measured, by name and unit, once or a few times.
type readings map[string][]map[string]float64

// one is a reading of a benchmark, nil if it was not run.
func (r readings) one(name string) map[string]float64 {
	if len(r[name]) == 0 {
		return nil
	}
	return r[name][0]
}

// measureMicro runs benchmarks and reads their lines: a name with the number of cores, the number
// of operations, and values with their units.
func measureMicro(ctx context.Context, pattern, benchtime string,
	args ...string) (readings, error) {
	lines, err := goBenchmarks(ctx, pattern, append([]string{"-benchtime", benchtime}, args...)...)
	if err != nil {
		return nil, err
	}
	r := readings{}
	for _, line := range lines {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(fields[0], "Benchmark")
		if cores := runtime.GOMAXPROCS(0); cores > 1 {
			name = strings.TrimSuffix(name, "-"+strconv.Itoa(cores))
		}
		of := map[string]float64{}
		for i := 2; i+1 < len(fields); i += 2 {
			if of[fields[i+1]], err = strconv.ParseFloat(fields[i], 64); err != nil {
				return nil, fmt.Errorf("benchmark's line %q: %w", line, err)
			}
		}
		r[name] = append(r[name], of)
	}
	return r, nil
}

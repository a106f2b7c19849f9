package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// Benchmarks runs Go benchmarks of package micro. The result is their output, which benchstat
// reads; the template of the command makes its tables from that.
type Benchmarks struct {
	Bench map[string]string `help:"Name patterns of benchmarks, each with its duration or number of iterations." mapsep:"," default:"${bench}"`
	Count int               `help:"Runs of each benchmark." default:"${count}"`
	Sizes map[string]string `help:"Flags of package micro." mapsep:"," default:"${sizes}"`
}

// Run runs the benchmarks of one pattern after the other.
func (o *Benchmarks) Run(ctx context.Context, b *bench) error {
	program, err := b.micro(ctx)
	if err != nil {
		return err
	}
	var all Lines
	for _, pattern := range slices.Sorted(maps.Keys(o.Bench)) {
		lines, err := o.run(ctx, program, pattern)
		if err != nil {
			return err
		}
		all = append(all, lines...)
	}
	return save(b, o, all)
}

// micro builds package micro, which go test would link anew for each pattern.
func (b *bench) micro(ctx context.Context) (program string, err error) {
	dir, err := b.dir()
	if err != nil {
		return "", err
	}
	program = filepath.Join(dir, "micro.test")
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet", "off", "-o", program,
		"twotier.dev/twotier/bench/micro")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the benchmarks: %w: %s", err, msg)
	}
	return program, nil
}

// run returns the lines of the benchmarks whose names match.
func (o *Benchmarks) run(ctx context.Context, program, pattern string) (Lines, error) {
	args := []string{"-test.run", "^$", "-test.timeout", "1h", "-test.bench", pattern,
		"-test.benchtime", o.Bench[pattern], "-test.count", strconv.Itoa(o.Count),
		"-programs", filepath.Dir(program)}
	for name, size := range o.Sizes {
		args = append(args, "-"+name, size)
	}
	var text bytes.Buffer
	cmd := attached(exec.CommandContext(ctx, program, args...), io.MultiWriter(os.Stderr, &text))
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("benchmarks %s: %w", pattern, err)
	}
	return strings.Split(strings.TrimSpace(text.String()), "\n"), nil
}

// Lines are the output of go test -bench.
type Lines []string

// Benchmark is one benchmark with its runs.
type Benchmark struct {
	path string // its name, with a slash at the end
	runs []*benchfmt.Result
}

// Of returns the benchmarks with a name or below it, in the order in which they were run.
func (l Lines) Of(name string) (all []*Benchmark) {
	byName := map[string]*Benchmark{}
	for r := benchfmt.NewReader(strings.NewReader(strings.Join(l, "\n")), ""); r.Scan(); {
		run, ok := r.Result().(*benchfmt.Result)
		if !ok || !strings.HasPrefix(path(run.Name), name+"/") {
			continue
		}
		at := path(run.Name)
		if byName[at] == nil {
			byName[at] = &Benchmark{path: at}
			all = append(all, byName[at])
		}
		byName[at].runs = append(byName[at].runs, run.Clone())
	}
	return all
}

// path returns a name without the number of cores, with a slash at its end.
func path(n benchfmt.Name) string {
	base, parts := n.Parts()
	text := string(base)
	for _, part := range parts {
		if part[0] == '/' {
			text += string(part)
		}
	}
	return text + "/"
}

// One returns the first benchmark of a name, or one without runs if there is none.
func (l Lines) One(name string) *Benchmark {
	for _, b := range l.Of(name) {
		return b
	}
	return &Benchmark{}
}

// Runs returns each run as a separate benchmark.
func (b *Benchmark) Runs() (all []*Benchmark) {
	for i := range b.runs {
		all = append(all, &Benchmark{b.path, b.runs[i : i+1]})
	}
	return all
}

// Get returns a value that the name has as "/key=value", or "".
func (b *Benchmark) Get(key string) string {
	for part := range strings.SplitSeq(b.path, "/") {
		if value, ok := strings.CutPrefix(part, key+"="); ok {
			return value
		}
	}
	return ""
}

// Number is Get for a number, 0 if it is none.
func (b *Benchmark) Number(key string) float64 {
	v, _ := strconv.ParseFloat(b.Get(key), 64)
	return v
}

// Median returns the median of the runs in a unit, 0 if none has it.
func (b *Benchmark) Median(unit string) float64 { return b.spread(unit).Median }

// Least returns the least of the runs in a unit, 0 if none has it.
func (b *Benchmark) Least(unit string) float64 { return b.spread(unit).Least }

// Range formats the median and the range of the runs.
func (b *Benchmark) Range(unit string) string { return b.spread(unit).String() }

// spread returns the median and the range of the runs in a unit, as printed: benchfmt turns
// nanoseconds into seconds.
func (b *Benchmark) spread(unit string) Spread {
	var values []float64
	for _, r := range b.runs {
		for _, v := range r.Values {
			switch unit {
			case v.OrigUnit:
				values = append(values, v.OrigValue)
			case v.Unit:
				values = append(values, v.Value)
			}
		}
	}
	return spread(values)
}

// Spread is the median and the range of a series.
type Spread struct{ Median, Least, Most float64 }

func (s Spread) String() string {
	return fmt.Sprintf("%.2f (%.2f to %.2f)", s.Median, s.Least, s.Most)
}

func spread(of []float64) Spread {
	if len(of) == 0 {
		return Spread{}
	}
	all := slices.Sorted(slices.Values(of))
	n := len(all)
	return Spread{(all[(n-1)/2] + all[n/2]) / 2, all[0], all[n-1]}
}

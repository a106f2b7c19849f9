package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is one line of go test -json: see go doc test2json and go help buildjson.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// skip is one test that was skipped.
type skip struct{ pkg, test, reason string }

func (s skip) String() string { return fmt.Sprintf("%s.%s: %s", s.pkg, s.test, s.reason) }

// testID identifies a test, or a package if test is empty.
type testID struct{ pkg, test string }

// taken is how long the tests of a package took, in seconds.
type taken struct {
	pkg     string
	seconds float64
}

// report collects the output of a run of go test.
type report struct {
	out    io.Writer
	output map[testID][]string // of everything that has not ended yet
	skips  []skip
	times  []taken
	// results are go test's lines about packages, in the order in which the packages ended.
	results []string
}

func newReport(out io.Writer) *report {
	return &report{out: out, output: make(map[testID][]string)}
}

// read reads the events of a run until it ends.
func (r *report) read(in io.Reader) error {
	events := json.NewDecoder(in)
	for {
		var e event
		err := events.Decode(&e)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			// Read the rest of the output, or go test would block forever.
			_, copyErr := io.Copy(r.out, in)
			return errors.Join(fmt.Errorf("read go test -json: %w", err), copyErr)
		}
		r.take(e)
	}
}

func (r *report) take(e event) {
	id := testID{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		r.output[id] = append(r.output[id], e.Output)
	case "pass", "skip", "fail":
		if e.Test == "" {
			r.endPackage(e)
		} else {
			r.endTest(e)
		}
		delete(r.output, id)
	}
}

func (r *report) endTest(e event) {
	lines := r.output[testID{e.Package, e.Test}]
	switch e.Action {
	case "skip":
		r.skips = append(r.skips, skip{e.Package, e.Test, reason(lines)})
	case "fail":
		r.print(lines)
	}
}

// endPackage keeps go test's line about a package. If the package failed, it prints the output of
// the package and of tests that never ended.
func (r *report) endPackage(e event) {
	lines := r.output[testID{e.Package, ""}]
	for _, line := range lines {
		if isResult(line) {
			r.results = append(r.results, line)
		}
	}
	if e.Action == "fail" {
		for id, rest := range r.output {
			if id.pkg == e.Package && id.test != "" {
				r.print(rest)
			}
		}
		r.print(lines)
	}
	if e.Action != "skip" { // skip: a package without tests
		fmt.Fprintf(r.out, "    %s: %s (%.1f s)\n", e.Action, e.Package, e.Elapsed)
		r.times = append(r.times, taken{e.Package, e.Elapsed})
	}
}

// slowest lists the n packages whose tests took longest, the longest first.
func (r *report) slowest(n int) string {
	slices.SortStableFunc(r.times, func(a, b taken) int {
		return cmp.Compare(b.seconds, a.seconds)
	})
	var b strings.Builder
	b.WriteString("the slowest packages:\n")
	for _, t := range r.times[:min(n, len(r.times))] {
		fmt.Fprintf(&b, "%8.1f s  %s\n", t.seconds, t.pkg)
	}
	return b.String()
}

func (r *report) print(lines []string) {
	for _, line := range lines {
		fmt.Fprint(r.out, line)
	}
}

// isResult reports whether a line is go test's result of a package, which begins with ok or FAIL.
func isResult(line string) bool {
	return strings.HasPrefix(line, "ok  \t") || strings.HasPrefix(line, "FAIL\t") ||
		strings.HasPrefix(line, "?   \t") ||
		strings.HasPrefix(line, "\t") && strings.Contains(line, "coverage: ")
}

// reason returns the text that a test logged before it was skipped, without source positions.
func reason(lines []string) string {
	var said []string
	for _, line := range lines {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		if _, text, ok := strings.Cut(line, ".go:"); ok {
			_, line, _ = strings.Cut(text, ": ")
		}
		said = append(said, line)
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return strings.Join(said, " ")
}

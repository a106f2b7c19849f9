package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// testID names a test; the one without a name is its package.
type testID struct{ pkg, test string }

// report is what one run of go test said.
type report struct {
	out    io.Writer
	output map[testID][]string // of everything that has not passed yet
	skips  []skip
	// results are go test's lines about packages, in the order in which they ended.
	results []string
}

func newReport(out io.Writer) *report {
	return &report{out: out, output: make(map[testID][]string)}
}

// read takes the events of a run until it ends.
func (r *report) read(in io.Reader) error {
	events := json.NewDecoder(in)
	for {
		var e event
		err := events.Decode(&e)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			// What go test still says has to be read, or it would wait for ever.
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

// endPackage keeps go test's line and, if the package failed, prints what it said, with the tests
// that never ended.
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
	if e.Action != "skip" { // a package without tests
		fmt.Fprintf(r.out, "    %s: %s (%.1f s)\n", e.Action, e.Package, e.Elapsed)
	}
}

func (r *report) print(lines []string) {
	for _, line := range lines {
		fmt.Fprint(r.out, line)
	}
}

// isResult tells whether the line is go test's about a package, such as "ok       example.org/x
// 0.1s".
func isResult(line string) bool {
	return strings.HasPrefix(line, "ok  \t") || strings.HasPrefix(line, "FAIL\t") ||
		strings.HasPrefix(line, "?   \t") ||
		strings.HasPrefix(line, "\t") && strings.Contains(line, "coverage: ")
}

// reason returns what a test logged before it was skipped, without the position in the source.
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

package ruletest

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Failure is a step whose answer was not as expected.
type Failure struct {
	// At is the place of the step, FILE:LINE:COLUMN.
	At string `json:"at"`
	// Test is the name of the test, and Time the time of the request since its start.
	Test string `json:"test"`
	Time string `json:"time"`
	// Request describes the request, and Repetition which one of several it is, from 1.
	Request    string `json:"request"`
	Repetition int    `json:"repetition,omitempty"`
	// Expected and Actual describe the answers. Counts describes the limits that were compared.
	Expected string `json:"expected"`
	Actual   string `json:"actual"`
	Counts   string `json:"counts,omitempty"`
}

// String returns the failure as a difference, on several lines.
func (f *Failure) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, at %s: %s", f.At, f.Test, f.Time, f.Request)
	if f.Repetition > 0 {
		fmt.Fprintf(&b, ", repetition %d", f.Repetition)
	}
	fmt.Fprintf(&b, "\n  - %s\n  + %s", f.Expected, f.Actual)
	if f.Counts != "" {
		fmt.Fprintf(&b, "\n    %s", f.Counts)
	}
	return b.String()
}

// Result is the outcome of all tests of a file.
type Result struct {
	Tests    int       `json:"tests"`
	Steps    int       `json:"steps"`
	Failures []Failure `json:"failures"`
}

// Run runs the tests one after the other, until ctx is done. A step that fails does not end its
// test. A request that is refused as invalid is a failure, too.
func (f *File) Run(ctx context.Context) (*Result, error) {
	all := &Result{Tests: len(f.tests), Failures: []Failure{}}
	for i := range f.tests {
		t := &f.tests[i]
		all.Steps += len(t.steps)
		failures, err := f.runTest(ctx, t)
		if err != nil {
			return nil, fmt.Errorf("test %q: %w", t.name, err)
		}
		all.Failures = append(all.Failures, failures...)
	}
	return all, nil
}

// runTest runs one test.
func (f *File) runTest(ctx context.Context, t *test) (failures []Failure, err error) {
	e, err := newEngine(ctx, f, t.start)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.close(ctx)) }()
	for i := range t.steps {
		failure := e.runStep(ctx, t, &t.steps[i])
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if failure != nil {
			failures = append(failures, *failure)
		}
	}
	return failures, nil
}

// runStep makes the requests of a step, and returns the first of them whose answer was not as
// expected, or nil.
func (e *engine) runStep(ctx context.Context, t *test, s *step) (first *Failure) {
	for i := range s.times {
		after := s.after + i*s.every
		err := e.moveTo(ctx, t.start+after)
		var o *outcome
		if err == nil {
			o, err = e.execute(ctx, s)
		}
		if first != nil || err == nil && s.want.isMet(o) {
			continue
		}
		first = &Failure{At: s.at, Test: t.name, Time: spell(after), Request: s.request(),
			Expected: s.want.String()}
		if s.times > 1 {
			first.Repetition = int(i) + 1
		}
		if first.Expected == "" {
			first.Expected = "any answer"
		}
		if err != nil {
			first.Actual = "error: " + err.Error()
			continue
		}
		first.Actual, first.Counts = o.describe(&s.want), o.counts()
	}
	return first
}

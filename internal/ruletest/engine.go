package ruletest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/envoy"
	"twotier.dev/twotier/internal/lint"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/storeclock"
	"twotier.dev/twotier/syncer"
)

const (
	// partitions is the number of partitions of a test's node: few, because it is made anew for
	// each test.
	partitions = 8
	// memory bounds the counts of a test.
	memory = 512 << 20
)

// engine is a node with a clock that the test moves.
type engine struct {
	now     atomic.Int64 // unix milliseconds
	node    *node.Node
	book    rules.Book
	limiter *envoy.Limiter
	domain  *outcome // of the limiter's request
	request ask.Request
	holds   ask.Holds
	ids     map[string]string // of holds, by name
	// deadlines are the ends of the holds that are to be released then, in order.
	deadlines []deadline
}

// deadline is the end of a hold.
type deadline struct {
	until int64 // unix milliseconds
	id    string
}

// newEngine returns a running engine, whose clock shows start.
func newEngine(ctx context.Context, f *File, start int64) (*engine, error) {
	e := &engine{ids: map[string]string{}}
	e.now.Store(start)
	e.book.Shadow = f.settings.InShadow()
	e.book.Set(f.rules, 1)
	e.holds.Now, e.holds.Tally.Now = e.now.Load, e.now.Load
	e.holds.Sealer.SetSecret([]byte(rand.Text()))
	e.request = ask.Request{Rules: &e.book, Shadow: e.book.Shadow, Holds: &e.holds,
		Words: ask.Words{NS: "ns", Parts: "checks or steps",
			Limits: "rule: name one, or give the namespace a rule with default: true"}}
	opt, err := e.nodeOptions(f.ladders, start)
	if err != nil {
		return nil, err
	}
	opt.Sinks = []decisions.Sink{decisions.Func(e.recordDecision)}
	if e.node, err = node.New(opt); err != nil {
		return nil, err
	}
	e.limiter = envoy.NewLimiter(e.node, &e.book, e.node.Verdicts())
	e.limiter.Ladders = f.ladders
	return e, e.node.Open(ctx, "")
}

// nodeOptions returns the options of a node that counts in memory.
func (e *engine) nodeOptions(ladders lint.Ladders, start int64) (opt node.Options, err error) {
	place := twotier.Placement{Partitions: partitions}
	spaces := map[string]syncer.Namespace{}
	for name, ladder := range ladders {
		spaces[name] = syncer.Namespace{Ladder: ladder}
	}
	opt = node.Options{ID: "test", Store: steady{}, Placement: place, ClockInterval: 24 * time.Hour,
		Clock: storeclock.New(func() time.Time { return time.UnixMilli(e.now.Load()) },
			func() time.Duration { return time.Duration(e.now.Load()-start) * time.Millisecond })}
	opt.Counter, err = syncer.New(syncer.Options{Now: opt.Clock.Now, Placement: place,
		Namespaces: spaces, MaxMemory: memory})
	return opt, err
}

// moveTo moves the clock to a time, and on its way releases the holds that end by then.
func (e *engine) moveTo(ctx context.Context, now int64) error {
	for len(e.deadlines) > 0 && e.deadlines[0].until <= now {
		next := e.deadlines[0]
		e.deadlines = e.deadlines[1:]
		e.now.Store(next.until)
		if err := e.holds.Release(ctx, e.node, next.id); err != nil {
			return fmt.Errorf("releasing a hold: %w", err)
		}
	}
	e.now.Store(now)
	return nil
}

// addDeadline adds the end of a hold that is to be released then.
func (e *engine) addDeadline(id string, until int64) {
	i, _ := slices.BinarySearchFunc(e.deadlines, until+1, func(d deadline, end int64) int {
		return cmp.Compare(d.until, end)
	})
	e.deadlines = slices.Insert(e.deadlines, i, deadline{until, id})
}

// steady is a store whose clock agrees with the test's.
type steady struct{}

// ClockAhead implements [node.Store].
func (steady) ClockAhead(context.Context, func() time.Time) (time.Duration, error) { return 0, nil }

// Health implements [node.Store].
func (steady) Health() cluster.StoreHealth {
	return cluster.StoreHealth{Kind: "embedded", Up: true}
}

// recordDecision records the decision of the limiter about a descriptor.
func (e *engine) recordDecision(d *decisions.Decision) {
	shadow := d.Verdict == twotier.ShadowRefused
	for i := range d.Limits {
		l := &d.Limits[i]
		name := cmp.Or(d.RuleName(), string(d.Key)) + "/" + twotier.FormatWindow(l.Window, l.Period)
		e.domain.record(name, l.Count, l.Max, shadow || d.Verdict == twotier.Refused, shadow)
	}
}

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

func (f *File) runTest(ctx context.Context, t *test) (failures []Failure, err error) {
	e, err := newEngine(ctx, f, t.start)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.node.Close(ctx)) }()
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

package request_test

import (
	"context"
	"testing"
	"time"

	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/trace"
)

// source counts how often it is asked.
type source struct {
	asked int
	found *trace.Context
}

func (s *source) TraceContext() *trace.Context {
	s.asked++
	return s.found
}

// TestTraceIsLookedForWhenAskedFor asks several times, directly and through a derived context: the
// source is asked once, never by Err or Finish, and not after the end of the request.
func TestTraceIsLookedForWhenAskedFor(t *testing.T) {
	s := &source{found: &trace.Context{ID: [16]byte{1}, Span: [8]byte{2}}}
	var c request.Context
	c.Reset(time.Now().Add(time.Hour), s)
	if c.Err() != nil || s.asked != 0 {
		t.Fatalf("asked %d times", s.asked)
	}
	under, cancel := context.WithCancel(&c)
	defer cancel()
	for range 2 {
		if trace.From(under) != s.found || trace.From(&c) != s.found || s.asked != 1 {
			t.Fatalf("asked %d times", s.asked)
		}
	}
	if c.Finish() {
		t.Error("a context that somebody waits for is used again")
	}
	var other request.Context
	other.Reset(time.Now().Add(time.Hour), s)
	if !other.Finish() || trace.From(&other) != nil || s.asked != 1 {
		t.Errorf("asked %d times", s.asked)
	}
	other.Reset(time.Now().Add(time.Hour), nil)
	if trace.From(&other) != nil {
		t.Error("a trace from nowhere")
	}
}

// TestContextAllocatesNothing checks that a context nobody waits on allocates nothing.
func TestContextAllocatesNothing(t *testing.T) {
	s, c, by := new(source), new(request.Context), time.Now().Add(time.Hour)
	if n := testing.AllocsPerRun(100, func() {
		c.Reset(by, s)
		if c.Err() != nil || trace.From(c) != nil || !c.Finish() {
			t.Error("not a fresh context")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

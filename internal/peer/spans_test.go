package peer_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/testing/spantest"
	"twotier.dev/twotier/internal/trace"
)

// TestSpans makes another node execute operations and a request, and fail: each has a span with
// the asking node's span as its parent, and the work for it is part of the span.
func TestSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTracedBed(t)
		if err := errors.Join(b.do(0), b.ask(0), b.do(7), b.ask(7)); err != nil {
			t.Fatal(err)
		}
		b.node.fails = true
		if err := b.do(8); !errors.Is(err, twotier.ErrUnavailable) {
			t.Error(err)
		}
		spans := b.spans.Spans()
		if len(spans) != 3 {
			t.Fatalf("%+v", spans)
		}
		var all [][8]byte
		for i, want := range []struct {
			name, method, operations, ns string
			number                       byte
			failed                       bool
		}{
			{"twotier.peer/operations", "operations", "2", "default", 7, false},
			{"twotier.peer/question", "top", "1", "", 7, false},
			{"twotier.peer/operations", "operations", "2", "default", 8, true},
		} {
			s := spans[i]
			all = append(all, s.ID)
			if s.Name != want.name || s.Attributes["rpc.method"] != want.method ||
				s.Attributes["twotier.operations"] != want.operations ||
				s.Attributes["twotier.namespace"] != want.ns ||
				s.Attributes["twotier.peer"] != "a-1" || s.Failed != want.failed ||
				s.Ended != 1 || s.Trace != [16]byte{15: want.number} ||
				s.Parent != [8]byte{7: want.number} {
				t.Errorf("%+v, want %+v", s, want)
			}
		}
		if !slices.Equal(b.node.spans, all) {
			t.Errorf("what was done is part of %v, want %v", b.node.spans, all)
		}
	})
}

// TestSpanOfOneOperation checks the verdict in a span, and that there is no span if the trace is
// not kept.
func TestSpanOfOneOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTracedBed(t)
		op := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{NS: []byte("a"),
			Key: []byte("k"), N: 1}}}
		res := make([]twotier.Result, 1)
		for _, flags := range []byte{trace.Sampled, 0} {
			of := &trace.Context{ID: [16]byte{1}, Span: [8]byte{2}, Flags: flags}
			b.client.DoAll(trace.With(t.Context(), of), []rpc.Group{{To: b.to, At: []int{0}}},
				[]twotier.Op{op}, res, func() {}, func(int) {})
			if res[0].Err != nil {
				t.Fatal(res[0].Err)
			}
		}
		spans := b.spans.Spans()
		if len(spans) != 1 || spans[0].Attributes["twotier.verdict"] != "allowed" ||
			spans[0].Attributes["twotier.namespace"] != "a" || spans[0].ID != spantest.ID(1) {
			t.Errorf("%+v", spans)
		}
	})
}

package peer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/peer"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/spantest"
	"twotier.dev/twotier/internal/trace"
	"twotier.dev/twotier/ring"
)

// tracedNode is a node that records the traces of tasks and requests.
type tracedNode struct {
	mu    sync.Mutex
	tasks []string
	asked []string
	spans [][8]byte // of both
	fails bool
}

func (n *tracedNode) Serve(_ context.Context, ops []twotier.Op, res []twotier.Result) {
	for i := range ops {
		res[i].Allowed = true
		res[i].AddCheck()
		if n.fails {
			res[i].Err = twotier.ErrUnavailable
		}
	}
}

func (n *tracedNode) ServeTasks(_ context.Context, tasks []rpc.Task, _ []twotier.Result) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range tasks {
		n.tasks = append(n.tasks, tasks[i].Trace.TraceID())
		n.note(tasks[i].Trace)
	}
}

// note records the span of work that is part of a trace.
func (n *tracedNode) note(of *trace.Context) {
	if of != nil {
		n.spans = append(n.spans, of.Span)
	}
}

func (n *tracedNode) Respond(ctx context.Context, request any) (any, error) {
	if _, ok := request.(*node.PingRequest); ok {
		return nil, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, trace.From(ctx).TraceID())
	n.note(trace.From(ctx))
	return &node.TopResponse{}, nil
}

// tracedBed is a client and a server.
type tracedBed struct {
	t      *testing.T
	node   tracedNode
	spans  spantest.Recorder
	client *peer.Client
	to     *ring.Member
}

func newTracedBed(t *testing.T) *tracedBed {
	b := &tracedBed{t: t, to: server}
	server := peer.NewServer(peer.ServerOptions{Self: "b-1", Node: &b.node,
		Tracer: &b.spans})
	b.client = newClient(t, peer.ClientOptions{Self: "a-1", Transport: handler{server}})
	return b
}

// context returns a context that is part of a trace, or of none if the number is 0.
func (b *tracedBed) context(number byte) context.Context {
	ctx := b.t.Context()
	if number == 0 {
		return ctx
	}
	return trace.With(ctx, &trace.Context{ID: [16]byte{15: number}, Span: [8]byte{7: number},
		Flags: trace.Sampled, State: fmt.Sprint("vendor=", number)})
}

// do sends an operation and another task as one call, and returns the first error.
func (b *tracedBed) do(number byte) error {
	op := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{Key: []byte("k"), N: 1}}}
	tasks := []rpc.Task{{Op: op}, {Verb: rpc.VerbCoordinate, Op: op}}
	res := make([]twotier.Result, len(tasks))
	b.client.Do(b.context(number), b.to, tasks, res)
	return errors.Join(res[0].Err, res[1].Err)
}

// ask asks a request.
func (b *tracedBed) ask(number byte) error {
	return b.client.Ask(b.context(number), b.to, &node.TopRequest{}, &node.TopResponse{})
}

func id(number byte) string { return (&trace.Context{ID: [16]byte{15: number}}).TraceID() }

// TestTracesReachTheOtherNode sends calls of several traces, and of none, at the same time: the
// receiver gets the right trace with each.
func TestTracesReachTheOtherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTracedBed(t)
		var all sync.WaitGroup
		for number := range byte(20) {
			all.Go(func() {
				if err := errors.Join(b.do(number), b.ask(number)); err != nil {
					t.Error(number, err)
				}
			})
		}
		all.Wait()
		var want, reported []string
		for number := range byte(20) {
			if number > 0 {
				want = append(want, id(number))
			}
		}
		for _, s := range b.spans.Spans() {
			number := s.Trace[15]
			method, operations := s.Attributes["rpc.method"], s.Attributes["twotier.operations"]
			if s.Attributes["twotier.peer"] != "a-1" || s.Failed || s.Ended != 1 ||
				s.State != fmt.Sprint("vendor=", number) ||
				method == "operations" && operations != "2" {
				t.Errorf("%+v", s)
			}
			reported = append(reported, method+" "+id(number))
		}
		slices.Sort(reported)
		slices.Sort(b.node.tasks)
		slices.Sort(b.node.asked)
		var both []string
		for _, what := range []string{"operations ", "top "} {
			for _, id := range want {
				both = append(both, what+id)
			}
		}
		want = append([]string{""}, want...)
		if !slices.Equal(b.node.tasks, want) || !slices.Equal(b.node.asked, want) ||
			!slices.Equal(reported, both) {
			t.Errorf("tasks of %v, requests of %v, reported %v", b.node.tasks, b.node.asked,
				reported)
		}
	})
}

// TestSpans makes another node execute operations and a request, and fail: each has a span with
// the asking node's span as its parent, and the work for it is part of the span.
func TestSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTracedBed(t)
		must.Succeed(t, errors.Join(b.do(0), b.ask(0), b.do(7), b.ask(7)))
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

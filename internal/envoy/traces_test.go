package envoy_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"twotier.dev/twotier/httpapi/rule"
	"twotier.dev/twotier/internal/envoy"
	"twotier.dev/twotier/internal/trace"
	"twotier.dev/twotier/syncer"
)

// tracing is a service, and a recorder of decisions, that notes which traces they are part of.
type tracing struct {
	*syncer.Counter
	mu             sync.Mutex
	done, recorded []string
}

func (s *tracing) Do(ctx context.Context, op *syncer.Op, res *syncer.Result) error {
	s.mu.Lock()
	s.done = append(s.done, trace.From(ctx).TraceID())
	s.mu.Unlock()
	return s.Counter.Do(ctx, op, res)
}

func (s *tracing) Chosen(rule.Verdict) bool { return true }

func (s *tracing) Record(d *rule.Decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recorded = append(s.recorded, d.TraceID)
}

// TestTraces sends requests whose metadata names a trace, none, and two.
func TestTraces(t *testing.T) {
	b := start(t)
	s := &tracing{Counter: b.counter}
	conn := dial(t, serve(t, envoy.Options{Limiter: envoy.NewLimiter(s, b.book, nil, s)}),
		insecure.NewCredentials())
	const id, rest = "0af7651916cd43dd8448eb211c80319c", "-b7ad6b7169203331-01"
	for _, parents := range [][]string{{"00-" + id + rest}, nil, {"00-" + id + rest, "00-" + id}} {
		ctx := t.Context()
		for _, parent := range parents {
			ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", parent, "tracestate", "v=1")
		}
		if code, err := ask(ctx, conn, "ip=1"); code != "OK" || err != nil {
			t.Fatal(code, err)
		}
	}
	if want := []string{id, "", ""}; !slices.Equal(s.done, want) ||
		!slices.Equal(s.recorded, want) {
		t.Errorf("executed %q, recorded %q, want %q", s.done, s.recorded, want)
	}
}

package envoy_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/envoy"
	"twotier.dev/twotier/internal/testing/spantest"
	"twotier.dev/twotier/internal/trace"
	"twotier.dev/twotier/internal/verdicts"
	"twotier.dev/twotier/syncer"
)

// tracing is a service, and a recorder of decisions, that notes the traces they belong to.
type tracing struct {
	*syncer.Counter
	mu             sync.Mutex
	done, recorded []string
}

func (s *tracing) Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	s.mu.Lock()
	s.done = append(s.done, trace.From(ctx).TraceID())
	s.mu.Unlock()
	return s.Counter.Do(ctx, op, res)
}

// record keeps the trace of a decision.
func (s *tracing) record(d *decisions.Decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recorded = append(s.recorded, d.Trace.TraceContext().TraceID())
}

// TestTraces sends requests whose metadata names a trace, none, and two.
func TestTraces(t *testing.T) {
	b := start(t)
	s := &tracing{Counter: b.counter}
	b.counted = verdicts.New(decisions.Func(s.record))
	conn := dial(t, serve(t, envoy.Options{Limiter: envoy.NewLimiter(s, b.book, b.counted)}),
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

// TestSpans sends one request that is allowed, one that is malformed and one that can't be
// answered, each in a recorded trace, and one in a trace that is not recorded.
func TestSpans(t *testing.T) {
	b := start(t)
	var r spantest.Recorder
	conn := dial(t, serve(t, envoy.Options{Limiter: envoy.NewLimiter(b.counter, b.book, b.counted),
		Tracer: &r}), insecure.NewCredentials())
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"
	part := func(flag string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "traceparent", parent+flag)
	}
	if code, err := ask(part("1"), conn, "ip=1"); code != "OK" || err != nil {
		t.Fatal(code, err)
	}
	if code, err := ask(part("0"), conn, "ip=1"); code != "OK" || err != nil {
		t.Fatal(code, err)
	}
	if _, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(part("1"),
		&ratelimitv3.RateLimitRequest{}); err == nil {
		t.Error("a request without a domain is no error")
	}
	b.counter.Close(t.Context())
	if _, err := ask(part("1"), conn, "ip=1"); err == nil {
		t.Error("a request after the end is no error")
	}
	spans := r.Spans()
	if len(spans) != 3 {
		t.Fatalf("%+v", spans)
	}
	for i, want := range []struct {
		verdict, code string
		failed        bool
	}{{"allowed", "0", false}, {"", "3", false}, {"", "14", true}} {
		s := spans[i]
		if s.Name != "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" ||
			s.Attributes["rpc.grpc.status_code"] != want.code || s.Ended != 1 ||
			s.Attributes["twotier.verdict"] != want.verdict || s.Failed != want.failed ||
			s.Attributes["rpc.method"] != "ShouldRateLimit" || s.Parent[0] != 0xb7 {
			t.Errorf("%+v, want %+v", s, want)
		}
	}
}

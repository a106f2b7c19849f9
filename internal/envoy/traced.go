package envoy

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"twotier.dev/twotier/internal/trace"
)

// withTrace returns ctx as part of the trace that a request names in its metadata, in W3C Trace
// Context format, with a new span if that is recorded. More than one traceparent counts as none.
func (s *Server) withTrace(ctx context.Context, method string) context.Context {
	parent := metadata.ValueFromIncomingContext(ctx, "traceparent")
	if len(parent) != 1 {
		return ctx
	}
	state := metadata.ValueFromIncomingContext(ctx, "tracestate")
	of := trace.Parse(parent[0], strings.Join(state, ","))
	name := strings.TrimPrefix(method, "/")
	return trace.With(ctx, trace.Begin(s.opts.Tracer, of, name, time.Now()))
}

// endSpan ends the span of a request of a method. A client's mistake is no failure.
func endSpan(span trace.Span, method string, code codes.Code) {
	service, method, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	span.Set(slog.String("rpc.system", "grpc"), slog.String("rpc.service", service),
		slog.String("rpc.method", method), slog.Int("rpc.grpc.status_code", int(code)))
	switch code {
	case codes.Unknown, codes.DeadlineExceeded, codes.Unimplemented, codes.Internal,
		codes.Unavailable, codes.DataLoss:
		span.Fail(code.String())
	}
	span.End()
}

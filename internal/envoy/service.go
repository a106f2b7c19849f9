package envoy

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/trace"
)

// service is the rate limit service.
type service struct {
	ratelimitv3.UnimplementedRateLimitServiceServer
	s *Server
}

// ShouldRateLimit decides one request. Its errors have a status: InvalidArgument, Unauthenticated,
// PermissionDenied, ResourceExhausted (a limit of this node), Unavailable and Internal mean that
// nothing was counted, and Unknown that something may have been.
func (v service) ShouldRateLimit(ctx context.Context, r *ratelimitv3.RateLimitRequest) (
	*ratelimitv3.RateLimitResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, v.s.opts.RequestTimeout)
	defer cancel()
	g, _ := ctx.Value(grantKey{}).(*twotier.Grant)
	response, err := v.s.opts.Limiter.ShouldRateLimit(ctx, g, r)
	if err != nil {
		return nil, v.s.statusOf(err)
	}
	if response.GetOverallCode() == overLimit {
		v.s.counters.over.Add(1)
	} else {
		v.s.counters.passed.Add(1)
	}
	return response, nil
}

// statusOf returns an error with its status.
func (s *Server) statusOf(err error) error {
	f, ok := errors.AsType[*request.Failure](err)
	if !ok || f.Kind == request.Internal {
		s.opts.Logger.Error("unexpected error of a request of Envoy", "err", err)
		return status.Error(codes.Internal, "an error of this server's own; its log says more")
	}
	code := [...]codes.Code{request.Invalid: codes.InvalidArgument,
		request.Overload: codes.ResourceExhausted, request.Unavailable: codes.Unavailable,
		request.Unknown: codes.Unknown, request.Forbidden: codes.PermissionDenied}[f.Kind]
	return status.Error(code, f.Detail)
}

// grantKey is the key of a context's grant.
type grantKey struct{}

// interceptUnary checks the token of a request, turns a panic into an error, and records a span.
func (s *Server) interceptUnary(ctx context.Context, in any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (out any, err error) {
	ctx = s.withTrace(ctx, info.FullMethod)
	span := trace.From(ctx).Recorded()
	defer func() {
		if v := recover(); v != nil {
			s.opts.Logger.Error("panic in a request", "panic", fmt.Sprint(v), "stack",
				string(debug.Stack()))
			err = status.Error(codes.Internal, "an error of this server's own; its log says more")
		}
		if err != nil {
			s.counters.failed.Add(1)
		}
		if span != nil {
			endSpan(span, info.FullMethod, status.Code(err))
		}
	}()
	ctx, err = s.authenticate(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	return s.execute(ctx, in, handler)
}

// interceptStream checks the token of a stream, which belongs to the health service or to
// reflection.
func (s *Server) interceptStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler) error {
	if _, err := s.authenticate(stream.Context(), info.FullMethod); err != nil {
		s.counters.failed.Add(1)
		return err
	}
	st := streamOf(stream.Context())
	if !st.markRunning(0) {
		return status.FromContextError(context.Canceled).Err()
	}
	defer st.markExecuted(0)
	return handler(srv, stream)
}

// authenticate returns a context with the grant of the token that a request presents. The health
// service needs no token, and neither does any service if no tokens are configured.
func (s *Server) authenticate(ctx context.Context, method string) (context.Context, error) {
	open := "/" + healthv1.Health_ServiceDesc.ServiceName + "/"
	if !s.access.HasTokens() || strings.HasPrefix(method, open) {
		return ctx, nil
	}
	presented := ""
	if values := metadata.ValueFromIncomingContext(ctx, "authorization"); len(values) == 1 {
		scheme, text, _ := strings.Cut(values[0], " ")
		if strings.EqualFold(scheme, "Bearer") {
			presented = text
		}
	}
	g := s.access.Find([]byte(presented))
	if g == nil {
		return nil, status.Error(codes.Unauthenticated,
			"want the metadata authorization: Bearer and a token of the node's --tokens")
	}
	return context.WithValue(ctx, grantKey{}, g), nil
}

// healthService is the standard health service. A check of the whole server asks the node.
type healthService struct {
	*health.Server
	ready func() error
}

// Check reports whether the server, or one of its services, can answer correctly.
func (h healthService) Check(ctx context.Context, r *healthv1.HealthCheckRequest) (
	*healthv1.HealthCheckResponse, error) {
	response, err := h.Server.Check(ctx, r)
	if err == nil && h.ready() != nil {
		response.Status = healthv1.HealthCheckResponse_NOT_SERVING
	}
	return response, err
}

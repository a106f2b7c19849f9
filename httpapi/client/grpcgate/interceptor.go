package grpcgate

import (
	"context"
	"net/http"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"twotier.dev/twotier/httpapi/client"
)

// Checks returns the checks of a call, all in one decision; none if it is not limited. method is
// its full name, such as "/grpc.health.v1.Health/Check". request is its message, or nil if the call
// is a stream. ctx is the context of the call, with its metadata and its peer.
type Checks func(ctx context.Context, method string, request any) []client.Check

// Unary returns an interceptor that limits calls of one request and one response.
func Unary(g *client.Gate, checks Checks) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo,
		handler grpc.UnaryHandler) (any, error) {
		d := g.Decide(ctx, checks(ctx, info.FullMethod, request))
		// It only fails if the headers have been sent, which is up to interceptors before this one.
		_ = grpc.SetHeader(ctx, headers(&d))
		if !d.Passes() {
			return nil, refusal(&d)
		}
		return handler(ctx, request)
	}
}

// Stream returns an interceptor that limits how often streams are opened.
func Stream(g *client.Gate, checks Checks) grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
		handler grpc.StreamHandler) error {
		ctx := stream.Context()
		d := g.Decide(ctx, checks(ctx, info.FullMethod, nil))
		_ = stream.SetHeader(headers(&d)) // fails as in Unary
		if !d.Passes() {
			return refusal(&d)
		}
		return handler(server, stream)
	}
}

// headers returns the headers of a decision as metadata.
func headers(d *client.Decision) metadata.MD {
	md := metadata.MD{}
	d.SetHeaders(func(name, value string) { md.Set(name, value) })
	return md
}

// refusal returns the status of a call that does not pass.
func refusal(d *client.Decision) error {
	s := status.New(codes.Unavailable, "no decision about the limits of this call")
	switch d.Status {
	case http.StatusTooManyRequests:
		s = status.New(codes.ResourceExhausted, "too many calls")
	case http.StatusInternalServerError:
		s = status.New(codes.Internal, "the limits of this call can't be checked")
	}
	if d.RetryAfter > 0 {
		info := &errdetails.RetryInfo{RetryDelay: durationpb.New(d.RetryAfter)}
		if detailed, err := s.WithDetails(info); err == nil { // it can always be encoded
			s = detailed
		}
	}
	return s.Err()
}

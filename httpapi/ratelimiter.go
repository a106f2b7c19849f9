package httpapi

import (
	"context"
	"errors"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/request"
)

// RateLimiter answers requests of Envoy's rate limit service in their JSON form.
type RateLimiter interface {
	// JSON returns the answer to a RateLimitRequest, and whether it is OVER_LIMIT. A nil grant
	// allows everything.
	JSON(ctx context.Context, g *twotier.Grant, body []byte) (answer []byte, over bool, err error)
}

// rateLimitJSON answers 200 or 429 with a RateLimitResponse, as envoyproxy/ratelimit does.
func (s *Server) rateLimitJSON(ctx *fasthttp.RequestCtx) *wire.Problem {
	// The answer to a descriptor, with its limit and its share of the headers, is a few times as
	// long as the descriptor.
	if p := memoryOf(ctx).ReserveUpTo(8 * int64(len(ctx.PostBody()))); p != nil {
		return p
	}
	x := s.beginRequest(ctx)
	answer, over, err := s.opts.RateLimiter.JSON(x.context, x.Grant, ctx.PostBody())
	s.finishRequest(x)
	if err != nil {
		return s.problemOfLimiter(err)
	}
	if over {
		ctx.SetStatusCode(fasthttp.StatusTooManyRequests)
	}
	return sendJSON(ctx, answer)
}

// problemOfLimiter turns an error of a RateLimiter into a problem.
func (s *Server) problemOfLimiter(err error) *wire.Problem {
	if f, ok := errors.AsType[*request.Failure](err); ok {
		return s.problemOfFailure(err, *f)
	}
	return s.problemOf(err, true)
}

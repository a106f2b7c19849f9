package httpapi

import (
	"strconv"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi/internal/codec"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/request"
)

// sendProblem makes a problem the response.
func sendProblem(ctx *fasthttp.RequestCtx, p *wire.Problem) {
	ctx.Response.ResetBody()
	ctx.SetStatusCode(p.Kind.Status)
	ctx.SetContentType("application/problem+json")
	if seconds := p.RetryAfter(); seconds > 0 {
		ctx.Response.Header.Set("Retry-After", strconv.Itoa(seconds))
	}
	if p.Allow != "" {
		ctx.Response.Header.Set("Allow", p.Allow)
	}
	if p.Kind.Status == fasthttp.StatusUnauthorized {
		ctx.Response.Header.Set("WWW-Authenticate", "Bearer")
	}
	ctx.Response.AppendBody(p.AppendJSON(nil))
}

// problemOf turns an error of the service into a problem.
func (s *Server) problemOf(err error, write bool) *wire.Problem {
	return s.problemOfFailure(err, request.FailureOf(err, write))
}

// problemOfOp is problemOf for operation i of x. It names the fields the way the request did.
func (s *Server) problemOfOp(err error, x *requestState, i int) *wire.Problem {
	return s.problemOfFailure(err, x.FailureOfOp(i, err, x.Tag(i) == codec.TagChecks))
}

// problemOfQuery is problemOf for a query about one key and one window.
func (s *Server) problemOfQuery(err error) *wire.Problem {
	return s.problemOfFailure(err, request.FailureOfQuery(err))
}

func (s *Server) problemOfFailure(err error, f request.Failure) *wire.Problem {
	if f.Kind == request.Internal {
		s.log.Error("unexpected error of an operation", "err", err)
	}
	return wire.FromFailure(&f)
}

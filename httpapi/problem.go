package httpapi

import (
	"strconv"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/codec"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/ratefield"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/warning"
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

// sendRefusal turns a refusal into a response of that status, with a Retry-After made from
// retryAfter in milliseconds. It sets no Retry-After if waiting will not help.
func sendRefusal(ctx *fasthttp.RequestCtx, status int, retryAfter int64) {
	ctx.SetStatusCode(status)
	if retryAfter >= 0 {
		ctx.Response.Header.Set("Retry-After",
			strconv.FormatInt(max(1, ratefield.Seconds(retryAfter)), 10))
	}
}

// headerRefusal is the header with the id of a refusal, which GET /v1/explain looks up.
const headerRefusal = "Twotier-Refusal"

// setRefusalField sets the field with the id of the refusal of a request's only operation, unless
// it has none.
func setRefusalField(ctx *fasthttp.RequestCtx, id decisions.RefusalID) {
	if !id.IsZero() {
		var text [128]byte
		ctx.Response.Header.SetBytesV(headerRefusal, id.Append(text[:0]))
	}
}

// setRateLimitFields sets the fields RateLimit-Policy and RateLimit for the only operation of x.
func setRateLimitFields(ctx *fasthttp.RequestCtx, x *requestState, res *twotier.Result) {
	if policy, state := x.encoder().RateLimitFields(res); policy != "" {
		ctx.Response.Header.Set("RateLimit-Policy", policy)
		ctx.Response.Header.Set("RateLimit", state)
	}
}

// Warnings holds the probable mistakes in a node's configuration.
type Warnings interface {
	// List returns all warnings, and Of the warnings of one source: settings or rules.
	List() []warning.Warning
	Of(source string) []warning.Warning
	// Observe records a warning triggered by a request.
	Observe(code warning.Code, at string)
}

// headerWarnings is the header with the number of warnings.
const headerWarnings = "Twotier-Warnings"

// setWarnings sets the header with the number of warnings, if there are any.
func (s *Server) setWarnings(ctx *fasthttp.RequestCtx) {
	if s.opts.Warnings == nil {
		return
	}
	if n := len(s.opts.Warnings.List()); n > 0 {
		ctx.Response.Header.Set(headerWarnings, strconv.Itoa(n))
	}
}

// showWarnings answers with the warnings of this node, and the version of the rules that they are
// about: 0 until one is known.
func (s *Server) showWarnings(ctx *fasthttp.RequestCtx, v twotier.RuleVersion) *wire.Problem {
	var list []warning.Warning
	if s.opts.Warnings != nil {
		list = s.opts.Warnings.List()
	}
	b := strconv.AppendInt([]byte(`{"version":`), v.Number, 10)
	return sendJSON(ctx, append(appendWarnings(b, list), '}'))
}

// appendRuleWarnings adds the warnings about the rules in force, if there are any, to an object.
func (s *Server) appendRuleWarnings(b []byte) []byte {
	if s.opts.Warnings == nil {
		return b
	}
	if list := s.opts.Warnings.Of(warning.Rules); len(list) > 0 {
		b = append(appendWarnings(b[:len(b)-1], list), '}')
	}
	return b
}

// appendWarnings appends a field with warnings.
func appendWarnings(b []byte, list []warning.Warning) []byte {
	b = append(b, `,"warnings":[`...)
	for _, w := range list {
		b = wire.AppendString(append(wire.AppendComma(b), `{"code":`...), w.Code)
		b = wire.AppendString(append(b, `,"at":`...), w.At)
		b = wire.AppendString(append(b, `,"reason":`...), w.Reason)
		b = wire.AppendString(append(b, `,"instead":`...), w.Instead)
		b = append(b, '}')
	}
	return append(b, ']')
}

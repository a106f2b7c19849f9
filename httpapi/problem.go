package httpapi

import (
	"errors"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/request"
)

// problemKind holds the common properties of all problems of a kind.
type problemKind struct {
	status      int
	name, title string
	retryAfter  int // seconds; 0: the same request would fail again
}

// The kinds of problem, in the order of their status.
var (
	kindMalformed    = problemKind{fasthttp.StatusBadRequest, "malformed", "Malformed request", 0}
	kindUnauthorized = problemKind{fasthttp.StatusUnauthorized, "unauthorized", "Not authorized", 0}
	kindForbidden    = problemKind{fasthttp.StatusForbidden, "forbidden", "Forbidden", 0}
	kindNotFound     = problemKind{fasthttp.StatusNotFound, "not-found", "No such resource", 0}
	kindMethod       = problemKind{fasthttp.StatusMethodNotAllowed, "method",
		"Method not allowed", 0}
	kindSequence = problemKind{fasthttp.StatusConflict, "sequence",
		"Not the next request of its session", 0}
	kindTimeout = problemKind{fasthttp.StatusRequestTimeout, "request-timeout",
		"Request took too long to arrive", 0}
	kindPrecondition = problemKind{fasthttp.StatusPreconditionFailed, "precondition",
		"Changed in the meantime", 0}
	kindTooLarge = problemKind{fasthttp.StatusRequestEntityTooLarge, "too-large",
		"Request body too large", 0}
	kindMediaType = problemKind{fasthttp.StatusUnsupportedMediaType, "media-type",
		"Unsupported media type", 0}
	kindMisdirected = problemKind{fasthttp.StatusMisdirectedRequest, "misdirected",
		"Meant for another process", 0}
	kindRefused = problemKind{fasthttp.StatusUnprocessableEntity, "refused",
		"Request refused", 0}
	kindPreconditionRequired = problemKind{fasthttp.StatusPreconditionRequired,
		"precondition-required", "Precondition required", 0}
	kindOverload = problemKind{fasthttp.StatusTooManyRequests, "overload", "Node overloaded", 1}
	kindHeaders  = problemKind{fasthttp.StatusRequestHeaderFieldsTooLarge, "headers-too-large",
		"Request header too large", 0}
	kindInternal = problemKind{fasthttp.StatusInternalServerError, "internal",
		"Internal error", 0}
	kindUnavailable = problemKind{fasthttp.StatusServiceUnavailable, "unavailable",
		"Can't answer now", 1}
	kindUnknown = problemKind{fasthttp.StatusServiceUnavailable, "unknown-outcome",
		"Outcome unknown", 1}
)

// problem is an error as the client sees it (RFC 9457).
type problem struct {
	kind problemKind
	// field is the path of the offending field, empty if the problem is not about a field.
	field  string
	detail string
	// after is an estimate of how long the cause may last; 0 if there is none.
	after time.Duration
	// limit marks a refusal by a limit of this server, before the node saw the request.
	limit bool
	// allow is the value of the Allow header of a 405.
	allow string
}

// refused returns the problem of a field whose value is well-formed but not acceptable.
func refused(field, detail string) *problem {
	return &problem{kind: kindRefused, field: field, detail: detail}
}

// ofField reports whether p is about a field in valid JSON, and so does not affect the other
// operations of a batch.
func (p *problem) ofField() bool { return p.kind == kindRefused || p.kind == kindForbidden }

// in prefixes the field of p with parent, a name or an index in brackets, and returns p. Problems
// that are not about a field stay as they are.
func (p *problem) in(parent string) *problem {
	if !p.ofField() {
		return p
	}
	if p.field != "" && p.field[0] != '[' {
		parent += "."
	}
	p.field = parent + p.field
	return p
}

// text returns the detail member: the field and its problem.
func (p *problem) text() string {
	if p.field == "" {
		return p.detail
	}
	return p.field + ": " + p.detail
}

// appendJSON appends p as a problem object.
func (p *problem) appendJSON(b []byte) []byte {
	b = append(b, `{"type":"urn:twotier:problem:`...)
	b = append(b, p.kind.name...)
	b = append(b, `","title":"`...)
	b = append(b, p.kind.title...)
	b = append(b, `","status":`...)
	b = strconv.AppendInt(b, int64(p.kind.status), 10)
	b = append(b, `,"detail":`...)
	b = appendString(b, p.text())
	if p.kind == kindUnknown {
		b = append(b, `,"outcome":"unknown"`...)
	}
	if p.after > 0 {
		b = append(b, `,"retry_after_ms":`...)
		b = strconv.AppendInt(b, p.after.Milliseconds(), 10)
	}
	return append(b, '}')
}

// retryAfter returns the value of the Retry-After header, in seconds: the estimate rounded up, or
// the kind's value if that is longer. 0 means no header.
func (p *problem) retryAfter() int {
	return max(p.kind.retryAfter, int((p.after+time.Second-1)/time.Second))
}

// send makes p the response.
func (p *problem) send(ctx *fasthttp.RequestCtx) {
	ctx.Response.ResetBody()
	ctx.SetStatusCode(p.kind.status)
	ctx.SetContentType("application/problem+json")
	if seconds := p.retryAfter(); seconds > 0 {
		ctx.Response.Header.Set("Retry-After", strconv.Itoa(seconds))
	}
	if p.allow != "" {
		ctx.Response.Header.Set("Allow", p.allow)
	}
	if p.kind.status == fasthttp.StatusUnauthorized {
		ctx.Response.Header.Set("WWW-Authenticate", "Bearer")
	}
	ctx.Response.AppendBody(p.appendJSON(nil))
}

// problemKinds are the kinds of problem in the order of [request.Kind].
var problemKinds = [...]problemKind{kindRefused, kindOverload, kindUnavailable, kindUnknown,
	kindInternal, kindForbidden}

// problemOf turns an error of the service into a problem.
func (s *Server) problemOf(err error, write bool) *problem {
	return s.problemOfFailure(err, request.FailureOf(err, write))
}

// problemOfOp is problemOf for operation i of x. It names the fields the way the request did.
func (s *Server) problemOfOp(err error, x *requestState, i int) *problem {
	return s.problemOfFailure(err, request.FailureOfOp(err, &x.Ops[i], x.Tag(i) == tagChecks))
}

// problemOfQuery is problemOf for a query about one key and one window.
func (s *Server) problemOfQuery(err error) *problem {
	return s.problemOfFailure(err, request.FailureOfQuery(err))
}

func (s *Server) problemOfFailure(err error, f request.Failure) *problem {
	var p *distinct.PanicError // it is logged as such
	if f.Kind == request.Internal && !errors.As(err, &p) {
		s.log.Error("unexpected error of an operation", "err", err)
	}
	return problemFrom(&f)
}

// problemFrom turns a failure into a problem; nil is none.
func problemFrom(f *request.Failure) *problem {
	if f == nil {
		return nil
	}
	return &problem{kind: problemKinds[f.Kind], field: f.Field, detail: f.Detail, after: f.After}
}

package httpapi

import (
	"cmp"
	"log/slog"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/receive"
	"twotier.dev/twotier/internal/peerhttp"
	"twotier.dev/twotier/internal/trace"
)

// The headers of W3C Trace Context, https://www.w3.org/TR/trace-context/.
const (
	headerTrace      = "traceparent"
	headerTraceState = "tracestate"
)

// traceOf returns the trace context of a request, or nil if it has none, several, or one that the
// specification has receivers ignore.
func traceOf(h *fasthttp.RequestHeader) *trace.Context {
	all := h.PeekAll(headerTrace)
	if len(all) != 1 {
		return nil
	}
	parent := string(all[0])
	var state []byte
	for i, v := range h.PeekAll(headerTraceState) {
		if i > 0 {
			state = append(state, ',')
		}
		state = append(state, v...)
	}
	return trace.Parse(parent, string(state))
}

// traced provides the trace context of a request.
type traced struct {
	ctx *fasthttp.RequestCtx
	of  *trace.Context // of its span, if that is recorded
}

// TraceContext implements trace.Source. It is called once, while the request is executed.
func (t *traced) TraceContext() *trace.Context {
	if t.of != nil {
		return t.of
	}
	return traceOf(&t.ctx.Request.Header)
}

// spanKey is the key of the request value that holds the context of the request's span.
const spanKey = "span"

// startSpan begins the span of a request that is part of a sampled trace. Messages of other nodes
// carry the contexts of their operations.
func (s *Server) startSpan(ctx *fasthttp.RequestCtx) {
	of := traceOf(&ctx.Request.Header)
	path := receive.Path(ctx.Request.Header.RequestURI())
	if of == nil || !of.Sampled() || string(path) == peerhttp.Path {
		return
	}
	began := ctx.Time()
	if began.IsZero() {
		began = time.Now()
	}
	scheme := "http"
	if s.opts.TLS != nil {
		scheme = "https"
	}
	method := string(ctx.Method())
	name := method
	switch method {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS":
	default:
		method, name = "_OTHER", "HTTP"
	}
	attributes := []slog.Attr{slog.String("http.request.method", method),
		slog.String("url.scheme", scheme)}
	if _, ok := connOf(ctx).endpoint.routes[string(path)]; ok {
		// No route has parameters in its path. An unknown path may contain a key.
		name += " " + string(path)
		attributes = append(attributes, slog.String("http.route", string(path)),
			slog.String("url.path", string(path)))
	}
	of = trace.Begin(s.opts.Tracer, of, name, began)
	if span := of.Recorded(); span != nil {
		span.Set(attributes...)
		ctx.SetUserValue(spanKey, of)
	}
}

// spanOf returns the context of a request's span, or nil if no span is recorded.
func spanOf(ctx *fasthttp.RequestCtx) *trace.Context {
	of, _ := ctx.UserValue(spanKey).(*trace.Context)
	return of
}

// endSpan ends the span of a request whose response is made.
func (s *Server) endSpan(ctx *fasthttp.RequestCtx) {
	span := spanOf(ctx).Recorded()
	if span == nil {
		return
	}
	code := ctx.Response.StatusCode()
	span.Set(slog.Int("http.response.status_code", code))
	if code >= fasthttp.StatusInternalServerError {
		span.Set(slog.String("error.type", strconv.Itoa(code)))
		span.Fail("")
	}
	span.End()
}

// annotateSpan adds the number of operations, and the namespace of the first one, to the span of a
// request.
func (x *requestState) annotateSpan(operations int) {
	ns := ""
	if len(x.Ops) > 0 {
		ns = string(x.Ops[0].Checks[0].NS)
	}
	x.traced.of.Recorded().Set(trace.OperationsAttr(operations),
		trace.NamespaceAttr(cmp.Or(ns, twotier.DefaultNamespace)))
}

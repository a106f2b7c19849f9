package httpapi

import (
	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/internal/trace"
)

// traced finds the trace of a request.
type traced struct{ ctx *fasthttp.RequestCtx }

// TraceID implements trace.Source. It is called while the request is executed.
func (t *traced) TraceID() string { return traceOf(&t.ctx.Request.Header) }

// traceOf returns the ID of the trace that a request is part of, or "" if it is part of none or
// names several.
func traceOf(h *fasthttp.RequestHeader) string {
	all := h.PeekAll("traceparent")
	if len(all) != 1 {
		return ""
	}
	return trace.ParseID(string(all[0]))
}

package httpapi

import (
	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/internal/trace"
)

// The headers of W3C Trace Context, https://www.w3.org/TR/trace-context/.
const (
	headerTrace      = "traceparent"
	headerTraceState = "tracestate"
)

// traceOf returns which trace a request is part of, or nil if it says none, says several, or says
// it in a way that the specification has receivers ignore.
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

// traced is where a request says which trace it is part of.
type traced struct{ ctx *fasthttp.RequestCtx }

// TraceContext implements trace.Source. It is called once, while the request is executed.
func (t *traced) TraceContext() *trace.Context { return traceOf(&t.ctx.Request.Header) }

package httpapi_test

import (
	"testing"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/verdicts"
)

const traceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// TestIdleMemoryKeepsNoTrace: the memory of an answered request does not refer to its trace.
func TestIdleMemoryKeepsNoTrace(t *testing.T) {
	s, ctx := newServer(t, newFake()), newRequest("POST /v1/add", `{"key":"a"}`)
	ctx.Request.Header.Set("traceparent", traceParent)
	s.Handle(ctx)
	if a := s.IdleArrival(); a != (verdicts.Arrival{}) {
		t.Errorf("it refers to %+v", a)
	}
}

// TestTwoTraceParents are none.
func TestTwoTraceParents(t *testing.T) {
	var h fasthttp.RequestHeader
	for _, want := range []string{traceParent[3:35], ""} {
		h.Add("traceparent", traceParent)
		if got := httpapi.TraceID(&h); got != want {
			t.Errorf("%d of them: %q", len(h.PeekAll("traceparent")), got)
		}
	}
}

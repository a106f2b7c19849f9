package httpapi_test

import (
	"context"
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/testing/spantest"
	"twotier.dev/twotier/internal/trace"
	"twotier.dev/twotier/internal/verdicts"
)

// The headers of a request whose trace is sampled, and of one whose trace is not.
const (
	sampled   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

// recording returns a server that records spans.
func recording(t testing.TB, f *fake) (*httpapi.Server, *spantest.Recorder) {
	t.Helper()
	r := new(spantest.Recorder)
	s := serverOf(t, httpapi.Options{Service: f, Rules: testRules{},
		Verdicts: verdicts.New(), Tracer: r})
	return s, r
}

// traced is newRequest as a part of a trace.
func traced(parent, request, body string) *fasthttp.RequestCtx {
	ctx := newRequest(request, body)
	ctx.Request.Header.Set("Traceparent", parent)
	return ctx
}

// TestSpans compares the spans of requests of each kind. Calls of the service are part of the
// server's span, not of the caller's.
func TestSpans(t *testing.T) {
	const twice = `{"key":"secret","n":2,"limits":[{"window":"1m","max":1}]}`
	for _, tt := range []struct {
		request, body, name string
		want                map[string]string
		fault               func(context.Context) error
	}{
		{"POST /v1/add", `{"key":"secret"}`, "POST /v1/add", map[string]string{
			"http.request.method": "POST", "http.route": "/v1/add", "url.path": "/v1/add",
			"url.scheme": "http", "http.response.status_code": "200", "twotier.operations": "1",
			"twotier.namespace": "default"}, nil},
		{"POST /v1/acquire", twice, "POST /v1/acquire", map[string]string{
			"http.request.method": "POST", "http.route": "/v1/acquire", "url.path": "/v1/acquire",
			"url.scheme": "http", "http.response.status_code": "200", "twotier.operations": "1",
			"twotier.namespace": "default", "twotier.verdict": "refused"}, nil},
		{"POST /v1/batch", `{"ops":[{"op":"add","key":"secret","ns":"a"},{"op":"acquire",` +
			`"key":"secret","limits":[{"window":"1m","max":9}]}]}`, "POST /v1/batch",
			map[string]string{"http.request.method": "POST", "http.route": "/v1/batch",
				"url.path": "/v1/batch", "url.scheme": "http",
				"http.response.status_code": "200", "twotier.operations": "2",
				"twotier.namespace": "a", "twotier.verdict": "allowed"}, nil},
		{"GET /v1/count?key=secret&window=1m", "", "GET /v1/count", map[string]string{
			"http.request.method": "GET", "http.route": "/v1/count", "url.path": "/v1/count",
			"url.scheme": "http", "http.response.status_code": "200", "twotier.operations": "1",
			"twotier.namespace": "default"}, nil},
		{"POST /v1/distinct", `{"ns":"b","key":"secret","values":["v"],` +
			`"limits":[{"window":"1h","max":9}]}`, "POST /v1/distinct", map[string]string{
			"http.request.method": "POST", "http.route": "/v1/distinct",
			"url.path": "/v1/distinct", "url.scheme": "http",
			"http.response.status_code": "200", "twotier.operations": "1",
			"twotier.namespace": "b", "twotier.verdict": "allowed"}, nil},
		{"GET /v1/forward-auth?rule=sms&key=Host", "", "GET /v1/forward-auth", map[string]string{
			"http.request.method": "GET", "http.route": "/v1/forward-auth",
			"url.path": "/v1/forward-auth", "url.scheme": "http",
			"http.response.status_code": "200", "twotier.operations": "1",
			"twotier.namespace": "sms", "twotier.verdict": "allowed"}, nil},
		{"BREW /coffee/secret", "", "HTTP", map[string]string{
			"http.request.method": "_OTHER", "url.scheme": "http",
			"http.response.status_code": "404"}, nil},
		{"POST /v1/add", `{"key":"secret"}`, "POST /v1/add", map[string]string{
			"http.request.method": "POST", "http.route": "/v1/add", "url.path": "/v1/add",
			"url.scheme": "http", "http.response.status_code": "503", "error.type": "503",
			"twotier.operations": "1", "twotier.namespace": "default"},
			func(context.Context) error { return twotier.ErrUnavailable }},
		{"POST /v1/add", `{"key":"secret"}`, "POST /v1/add", map[string]string{
			"http.request.method": "POST", "http.route": "/v1/add", "url.path": "/v1/add",
			"url.scheme": "http", "http.response.status_code": "500", "error.type": "500",
			"twotier.operations": "1", "twotier.namespace": "default"},
			func(context.Context) error { panic("on purpose") }},
	} {
		f := newFake()
		var of *trace.Context
		f.fault = func(ctx context.Context) error {
			if of = trace.From(ctx); tt.fault == nil {
				return nil
			}
			return tt.fault(ctx)
		}
		s, r := recording(t, f)
		s.Handle(traced(sampled, tt.request, tt.body))
		spans := r.Spans()
		if len(spans) != 1 {
			t.Errorf("%s: %d spans", tt.request, len(spans))
			continue
		}
		span := spans[0]
		parent := trace.Parse(sampled, "")
		if span.Name != tt.name || !maps.Equal(span.Attributes, tt.want) || span.Ended != 1 ||
			span.Failed != (tt.fault != nil) || span.Trace != parent.ID ||
			span.Parent != parent.Span {
			t.Errorf("%s: %+v, want %v", tt.request, span, tt.want)
		}
		if of != nil && (of.ID != parent.ID || of.Span != span.ID || !of.Sampled()) {
			t.Errorf("%s: it is executed as part of %+v", tt.request, of)
		}
		for _, header := range []string{"", unsampled, "00-x"} {
			s.Handle(traced(header, tt.request, tt.body))
		}
		if n := len(r.Spans()); n != 1 {
			t.Errorf("%s: %d spans of requests whose trace is not kept", tt.request, n-1)
		}
	}
}

// TestIdleMemoryKeepsNoSpan: the memory of an answered request refers to neither span nor trace.
func TestIdleMemoryKeepsNoSpan(t *testing.T) {
	s, _ := recording(t, newFake())
	s.Handle(traced(sampled, "POST /v1/add", `{"key":"a"}`))
	if a := s.IdleArrival(); a != (verdicts.Arrival{}) {
		t.Errorf("it refers to %+v", a)
	}
}

// TestTwoTraceParents are none.
func TestTwoTraceParents(t *testing.T) {
	var h fasthttp.RequestHeader
	for _, want := range []string{sampled[3:35], ""} {
		h.Add("traceparent", sampled)
		if got := httpapi.TraceID(&h); got != want {
			t.Errorf("%d of them: %q", len(h.PeekAll("traceparent")), got)
		}
	}
}

// BenchmarkTraced answers acquires without a tracer, and with one: part of no trace, and of one
// that is sampled. The tracer keeps nothing, so its own work is not measured.
func BenchmarkTraced(b *testing.B) {
	const body = `{"key":"user:1234567","limits":[{"window":"1m","max":15}]}`
	for _, bb := range []struct {
		name   string
		tracer trace.Tracer
		parent string
	}{
		{"off", nil, ""}, {"off, sampled", nil, sampled}, {"no trace", discarded{}, ""},
		{"unsampled", discarded{}, unsampled}, {"sampled", discarded{}, sampled},
	} {
		b.Run(bb.name, func(b *testing.B) {
			s := serverOf(b, httpapi.Options{Service: newFake(), Rules: testRules{},
				Verdicts: verdicts.New(), Tracer: bb.tracer})
			ctx := newRequest("POST /v1/acquire", body)
			if bb.parent != "" {
				ctx.Request.Header.Set("Traceparent", bb.parent)
			}
			benchmark(b, s, ctx, 1)
		})
	}
}

// discarded is a tracer that keeps nothing.
type discarded struct{}

func (discarded) Start([16]byte, [8]byte, string, string, time.Time) (trace.Span, [8]byte) {
	return discarded{}, [8]byte{1}
}

func (discarded) Set(...slog.Attr) {}
func (discarded) Fail(string)      {}
func (discarded) End()             {}

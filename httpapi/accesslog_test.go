package httpapi_test

import (
	"encoding/json"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi"
)

// logged collects the lines of an access log.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) Add(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(line))
}

// accessed sends one request and returns its line.
func accessed(t *testing.T, o httpapi.Options, from, method, uri, body string,
	headers ...string) map[string]any {
	t.Helper()
	var l logged
	o.Service, o.AccessLog, o.AccessShare = newFake(), &l, 1
	s, err := httpapi.New(o)
	if err != nil {
		t.Fatal(err)
	}
	var ctx fasthttp.RequestCtx
	var req fasthttp.Request
	req.Header.SetMethod(method)
	req.SetRequestURI(uri)
	req.Header.SetHost("localhost")
	if body != "" {
		req.Header.SetContentType("application/json")
		req.SetBodyString(body)
		req.Header.SetContentLength(len(body))
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	ctx.Init(&req, net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 9)), nil)
	s.Handle(&ctx)
	if len(l.lines) != 1 {
		t.Fatalf("%d lines: %q", len(l.lines), l.lines)
	}
	got := map[string]any{}
	if err := json.Unmarshal([]byte(l.lines[0]), &got); err != nil {
		t.Fatalf("%v: %s", err, l.lines[0])
	}
	at, err := time.Parse(time.RFC3339, got["time"].(string))
	if took := got["duration_ms"].(float64); err != nil || took < 0 ||
		at.After(time.Now().Add(time.Second)) {
		t.Errorf("%s", l.lines[0])
	}
	return got
}

// TestAccessLog compares the lines of requests that succeed, fail, and try to forge a line.
func TestAccessLog(t *testing.T) {
	const trace = "0af7651916cd43dd8448eb211c80319c"
	behind := httpapi.Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	for _, tt := range []struct {
		options                 httpapi.Options
		from, method, uri, body string
		headers                 []string
		status                  float64
		path, client, trace     string
	}{
		{method: "POST", uri: "/v1/add?", body: `{"key":"k"}`, from: "192.0.2.1", status: 200,
			path: "/v1/add", client: "192.0.2.1"},
		{method: "GET", uri: "/v1/count?key=secret&window=1m", from: "10.1.2.3", status: 200,
			options: behind, headers: []string{"X-Forwarded-For: 1.1.1.1, 203.0.113.9, 10.9.9.9",
				"traceparent: 00-" + trace + "-b7ad6b7169203331-01"},
			path: "/v1/count", client: "203.0.113.9", trace: trace},
		{method: "GET", uri: "/no\"\\\u00e9", from: "::1", status: 404, path: "/no\"\\\u00e9",
			headers: []string{"X-Forwarded-For: 1.1.1.1"}, client: "::1"},
		{method: "GET", uri: "/" + strings.Repeat("x", 999), from: "192.0.2.1", status: 404,
			path: "/" + strings.Repeat("x", 255), client: "192.0.2.1"},
		{method: "POST", uri: "/v1/add", body: `{`, from: "192.0.2.1", status: 400,
			path: "/v1/add", client: "192.0.2.1"},
	} {
		got := accessed(t, tt.options, tt.from, tt.method, tt.uri, tt.body, tt.headers...)
		id, _ := got["trace_id"].(string)
		if got["method"] != tt.method || got["path"] != tt.path || got["status"] != tt.status ||
			got["client"] != tt.client || id != tt.trace || got["bytes"].(float64) < 20 {
			t.Errorf("%s %s: %v", tt.method, tt.uri, got)
		}
	}
}

// TestAccessLogIsSampled sends many requests: about half of them are logged.
func TestAccessLogIsSampled(t *testing.T) {
	const times = 4000
	var l logged
	s, err := httpapi.New(httpapi.Options{Service: newFake(), AccessLog: &l, AccessShare: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	for range times {
		var ctx fasthttp.RequestCtx
		ctx.Request.SetRequestURI("/healthz")
		ctx.Request.Header.SetHost("localhost")
		s.Handle(&ctx)
	}
	// 450 are 14 standard deviations.
	if n := len(l.lines); n < times/2-450 || n > times/2+450 {
		t.Errorf("%d of %d", n, times)
	}
}

// TestTraceParents covers the values that the specification has receivers accept and ignore.
func TestTraceParents(t *testing.T) {
	const id, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	good := "00-" + id + "-" + parent + "-00"
	for value, want := range map[string]string{
		good:                        id,
		good[:53] + "ff":            id,
		"cc" + good[2:]:             id,
		"cc" + good[2:] + "-future": id,
		"":                          "", good[:54]: "", good + "-x": "", good + "0": "",
		"cc" + good[2:] + "x": "", "ff" + good[2:]: "", "0g" + good[2:]: "",
		strings.ToUpper(good):       "",
		good[:53] + "0x":            "",
		"00_" + good[3:]:            "",
		good[:35] + "_" + good[36:]: "",
		good[:52] + "_" + good[53:]: "",
		"00-" + strings.Repeat("0", 32) + "-" + parent + "-00": "",
		"00-" + id + "-" + strings.Repeat("0", 16) + "-00":     "",
	} {
		var h fasthttp.RequestHeader
		h.Add("traceparent", value)
		if got := httpapi.TraceID(&h); got != want {
			t.Errorf("%q: %q, want %q", value, got, want)
		}
	}
	var twice fasthttp.RequestHeader
	twice.Add("traceparent", good)
	twice.Add("traceparent", good)
	if got := httpapi.TraceID(&twice); got != "" {
		t.Errorf("two of them: %q", got)
	}
}

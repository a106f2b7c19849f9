package client_test

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/testing/must"
)

// TestGateBody checks the bodies of answers to requests that don't pass, whatever the server is.
func TestGateBody(t *testing.T) {
	gone, err := client.New(client.Options{Addresses: []string{"127.0.0.1:1"}})
	must.Succeed(t, err)
	defer gone.Close(t.Context())
	never := func(o *client.GateOptions) {
		o.Limits = []client.Limit{{Window: time.Minute}}
		o.Outage = client.FailClosed
	}
	const many = `"detail":"too many requests for a limit, or for the moment"`
	for want, c := range map[string]*client.Client{
		`{"title":"Too Many Requests","status":429,` + many + `,"id":"ID"}`: newBed(t, 1).client(),
		`{"title":"Too Many Requests","status":429,` + many + `,"retry_after_ms":2350}`: stub(t,
			`"status":429,"retry_after_ms":2350`),
		`{"title":"Internal Server Error","status":500,` +
			`"detail":"the limits of this request can't be checked"}`: stub(t, `"status":422`),
		`{"title":"Service Unavailable","status":503,` +
			`"detail":"no decision about the limits of this request","retry_after_ms":1000}`: gone,
	} {
		g := gate(t, c, never)
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		all := g.Middleware(client.ByAddress())
		all(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			t.Error("a request has passed")
		})).ServeHTTP(w, r)
		body := refusalOf(want, w.Header().Get("Twotier-Refusal"))
		if kind := w.Header().Get("Content-Type"); w.Body.String() != body ||
			kind != client.ProblemType {
			t.Errorf("%s: %s, want %s", kind, w.Body, body)
		}
		var ctx fasthttp.RequestCtx
		g.FastHandler(client.FastByAddress(), func(*fasthttp.RequestCtx) {
			t.Error("a request of fasthttp has passed")
		})(&ctx)
		h := &ctx.Response.Header
		body = refusalOf(want, string(h.Peek("Twotier-Refusal")))
		if string(ctx.Response.Body()) != body || string(h.ContentType()) != client.ProblemType ||
			string(h.Peek("Retry-After")) != w.Header().Get("Retry-After") {
			t.Errorf("fasthttp: %s, want %s", &ctx.Response, body)
		}
	}
}

// refusalOf puts the id of a refusal, which differs from run to run, into a body.
func refusalOf(body, id string) string {
	return strings.Replace(body, `"ID"`, strconv.Quote(cmp.Or(id, "no id")), 1)
}

// TestGateDryRun: every request passes, and the headers show the decisions.
func TestGateDryRun(t *testing.T) {
	g := gate(t, newBed(t, 1).client(), func(o *client.GateOptions) { o.DryRun = true })
	var next served
	for i, state := range []string{"r=2", "r=1", "r=0", "r=0;t=", "r=0;t="} {
		resp := visit(t.Context(), g, &next, "ann")
		if got := resp.Header.Get("RateLimit"); resp.StatusCode != 200 ||
			!strings.HasPrefix(got, `"limits[0]";`+state) || resp.Header.Get("Retry-After") != "" {
			t.Errorf("request %d: %d, %v", i, resp.StatusCode, resp.Header)
		}
	}
	wrong := gate(t, stub(t, `"status":422`), func(o *client.GateOptions) { o.DryRun = true })
	if resp := visit(context.Background(), wrong, &next, "ann"); resp.StatusCode != 200 {
		t.Errorf("without a decision: %d", resp.StatusCode)
	}
	if n := next.Load(); n != 6 {
		t.Errorf("%d passed, want 6", n)
	}
}

// TestByAddress: net/http and fasthttp give the same keys; clientaddr tests the table of them.
func TestByAddress(t *testing.T) {
	trusted := netip.MustParsePrefix("10.0.0.0/8")
	for _, tt := range []struct {
		peer      string
		forwarded []string
		want      string
	}{
		{"203.0.113.7:4711", []string{"198.51.100.1"}, "203.0.113.7"},
		{"[::ffff:203.0.113.7]:4711", nil, "203.0.113.7"},
		{"[2001:db8::1]:4711", nil, "2001:db8::/64"},
		{"10.0.0.1:4711", []string{"198.51.100.1, 192.0.2.1", "10.0.0.2"}, "192.0.2.1"},
		{"@", []string{"198.51.100.1"}, "none"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr, r.Header["X-Forwarded-For"] = tt.peer, tt.forwarded
		key, limited := client.ByAddress(trusted)(r)
		if key != tt.want || !limited {
			t.Errorf("%+v: %s, %v", tt, key, limited)
		}
		var ctx fasthttp.RequestCtx
		var peer net.Addr = &net.UnixAddr{Name: "@"}
		if a, err := net.ResolveTCPAddr("tcp", tt.peer); err == nil {
			peer = a
		}
		ctx.Init(&fasthttp.Request{}, peer, nil)
		for _, v := range tt.forwarded {
			ctx.Request.Header.Add("X-Forwarded-For", v)
		}
		if key, limited := client.FastByAddress(trusted)(&ctx); key != tt.want || !limited {
			t.Errorf("fasthttp: %+v: %s, %v", tt, key, limited)
		}
	}
}

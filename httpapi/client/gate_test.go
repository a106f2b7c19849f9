package client_test

import (
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/testing/must"
)

// gate returns a gate that allows three requests a minute, with options modified by change.
func gate(t *testing.T, c *client.Client, change func(*client.GateOptions)) *client.Gate {
	t.Helper()
	o := client.GateOptions{
		Client: c, Limits: []client.Limit{{Window: time.Minute, Max: 3}}, Wait: 5 * time.Second,
		Outage: client.FailOpen,
	}
	change(&o)
	g, err := client.NewGate(o)
	must.Succeed(t, err)
	return g
}

func asGiven(*client.GateOptions) {}

// byUser limits requests that have a User header, by its first value.
func byUser(r *http.Request) (string, bool) { return r.Header.Get("User"), r.Header["User"] != nil }

// served counts the requests that pass.
type served struct{ atomic.Int64 }

func (s *served) ServeHTTP(http.ResponseWriter, *http.Request) { s.Add(1) }

// visit sends one request through a gate.
func visit(ctx context.Context, g *client.Gate, next http.Handler, user ...string) *http.Response {
	r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
	if len(user) > 0 {
		r.Header["User"] = user
	}
	w := httptest.NewRecorder()
	g.Handler(byUser, next).ServeHTTP(w, r)
	return w.Result()
}

func TestGate(t *testing.T) {
	b := newBed(t, 1)
	g := gate(t, b.client(), asGiven)
	var next served
	for i := range 5 {
		resp := visit(t.Context(), g, &next, "ann")
		after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		switch {
		case i < 3 && resp.StatusCode != 200:
			t.Errorf("request %d: %d", i, resp.StatusCode)
		case i >= 3 && (resp.StatusCode != 429 || after < 1 || after > 62):
			t.Errorf("request %d: %d, Retry-After %q", i, resp.StatusCode,
				resp.Header.Get("Retry-After"))
		}
	}
	for range 5 {
		if resp := visit(t.Context(), g, &next); resp.StatusCode != 200 {
			t.Errorf("one that is not limited: %d", resp.StatusCode)
		}
	}
	if n := next.Load(); n != 8 {
		t.Errorf("%d passed", n)
	}
	never := gate(t, b.client(), func(o *client.GateOptions) {
		o.Limits = []client.Limit{{Window: time.Minute}}
	})
	resp := visit(t.Context(), never, &next, "bob")
	if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "" {
		t.Errorf("a limit of none: %d, Retry-After %q", resp.StatusCode,
			resp.Header.Get("Retry-After"))
	}
}

// TestGateLimitsEveryKey lets an attacker choose the key: even a key that a server would refuse is
// limited.
func TestGateLimitsEveryKey(t *testing.T) {
	b := newBed(t, 1)
	g := gate(t, b.client(), func(o *client.GateOptions) {
		o.OnError = func(k string, err error) { t.Errorf("%q: %v", k, err) }
	})
	for _, key := range []string{
		"", strings.Repeat("k", 257), strings.Repeat("k", 1<<16), "\xff", "a\tb", "\x00", "\u0085",
		"k\x7f",
		client.SafeKey("\x01"), strings.Repeat("é", 128), `"\`,
	} {
		var next served
		for range 20 {
			visit(t.Context(), g, &next, key)
		}
		if n := next.Load(); n != 3 {
			t.Errorf("%.20q: %d of 20 passed, want 3", key, n)
		}
	}
}

func TestSafeKey(t *testing.T) {
	const ofFF = "sha256:a8100ae6aa1940d0b663bb31cd466142ebbdbd5187131b92d93818987832eb89"
	for key, want := range map[string]string{
		"ann": "ann", strings.Repeat("k", 256): strings.Repeat("k", 256), "sha256": "sha256",
		"naïve": "naïve",
		"\xff":  ofFF,
		"":      "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
	} {
		if got := client.SafeKey(key); got != want {
			t.Errorf("%.20q becomes %q, want %q", key, got, want)
		}
	}
	if client.SafeKey(ofFF) == ofFF {
		t.Error("a key can be chosen that is the replacement of another")
	}
}

func TestGateWithoutAService(t *testing.T) {
	c := noNode(t)
	for outage, want := range map[client.Outage]struct {
		code  int
		after string
	}{client.FailOpen: {200, ""}, client.FailClosed: {503, "1"}} {
		var told atomic.Int64
		g := gate(t, c, func(o *client.GateOptions) {
			o.Outage = outage
			o.OnError = func(key string, err error) {
				if key != "ann" || err == nil {
					t.Errorf("%q, %v", key, err)
				}
				told.Add(1)
			}
		})
		resp := visit(t.Context(), g, new(served), "ann")
		if after := resp.Header.Get("Retry-After"); resp.StatusCode != want.code ||
			after != want.after || told.Load() != 1 {
			t.Errorf("%v: %d, Retry-After %q, told %d times", outage, resp.StatusCode, after,
				told.Load())
		}
		var ctx fasthttp.RequestCtx
		g.FastHandler(func(*fasthttp.RequestCtx) (string, bool) { return "ann", true },
			func(*fasthttp.RequestCtx) {})(&ctx)
		if ctx.Response.StatusCode() != want.code ||
			string(ctx.Response.Header.Peek("Retry-After")) != want.after {
			t.Errorf("fasthttp, %v: %d", outage, ctx.Response.StatusCode())
		}
	}
}

// TestGateRefusesWhatIsNoOutage uses a service that answers, but without a decision.
func TestGateRefusesWhatIsNoOutage(t *testing.T) {
	for _, tt := range []struct {
		problem string
		status  int
		after   string
	}{
		{`"status":422`, 500, ""},
		{`"status":429`, 429, "1"},
		{`"status":429,"retry_after_ms":2350`, 429, "3"},
		{`"status":429,"retry_after_ms":9000000000000000`, 429, "60"},
	} {
		g := gate(t, stub(t, tt.problem), asGiven)
		var next served
		resp := visit(t.Context(), g, &next, "ann")
		if after := resp.Header.Get("Retry-After"); resp.StatusCode != tt.status ||
			next.Load() != 0 || after != tt.after {
			t.Errorf("a problem with %s: %d after %q, %d passed; want %d, %q", tt.problem,
				resp.StatusCode, after, next.Load(), tt.status, tt.after)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	for problem, want := range map[string]time.Duration{
		`"status":429,"retry_after_ms":2350`:     2350 * time.Millisecond,
		`"status":503`:                           time.Second,
		`"status":503,"outcome":"unknown"`:       0,
		`"status":422`:                           0,
		`"status":401`:                           0,
		`"status":429,"retry_after_ms":-1`:       time.Second,
		`"status":429,"retry_after_ms":86400000`: time.Minute,
	} {
		_, err := stub(t, problem).Add(t.Context(), client.AddRequest{Key: "k"})
		if got := client.RetryAfter(err); err == nil || got != want {
			t.Errorf("%s: %v, want %v", problem, got, want)
		}
	}
	if got := client.RetryAfter(nil); got != 0 {
		t.Errorf("without an error: %v", got)
	}
}

// stub returns a client of a service that answers every operation with a problem with these
// members.
func stub(t *testing.T, members string) *client.Client {
	return clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Twotier-Process", "stub")
		_, _ = io.WriteString(w, `{"results":[{"error":{"title":"no",`+members+`}}]}`)
	}, func(*client.Options) {})
}

// TestGateDoesNotServeWhoLeft hangs up right after sending a request: the request must not be
// served without a decision.
func TestGateDoesNotServeWhoLeft(t *testing.T) {
	b := newBed(t, 1)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	var next served
	for range 20 {
		visit(ctx, gate(t, b.client(), asGiven), &next, "ann")
	}
	if n := next.Load(); n > 0 {
		t.Errorf("%d of 20 were served unlimited", n)
	}
}

func TestGateOptions(t *testing.T) {
	limits := []client.Limit{{Window: time.Minute, Max: 3}}
	c := newBed(t, 1).client()
	for want, o := range map[string]client.GateOptions{
		"Client":         {Limits: limits, Outage: client.FailOpen},
		"neither Limits": {Client: c, Outage: client.FailOpen},
		"Outage":         {Client: c, Limits: limits},
		"Wait":           {Client: c, Limits: limits, Outage: client.FailClosed, Wait: -1},
	} {
		if _, err := client.NewGate(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without a right %s: %v", want, err)
		}
	}
}

// TestGateBody checks the bodies of answers to requests that don't pass, whatever the server is.
func TestGateBody(t *testing.T) {
	gone := noNode(t)
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

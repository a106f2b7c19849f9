package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/holds"
	"twotier.dev/twotier/internal/rpc"
)

// newServer returns a server that is not listening.
func newServer(t testing.TB, f *fake) *httpapi.Server {
	t.Helper()
	s := serverOf(t, httpapi.Options{Service: f, AdminToken: adminToken, Rules: testRules{},
		Holds:          documentedHolds(),
		RateLimiter:    &limiter{},
		RuleBook:       newRuleBook(t),
		Backtester:     new(backtester),
		Verdicts:       f.counters(),
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	return s
}

// documentedHolds returns holds with the secret of the id in the document, at a time within that
// hold.
func documentedHolds() *ask.Holds {
	now := func() int64 { return 4_102_444_700_000 }
	h := &ask.Holds{Now: now, Tally: holds.Tally{Now: now}}
	h.Sealer.SetSecret([]byte("documented"))
	return h
}

// adminToken is the admin token of newServer. newRequest presents it for admin calls and PUTs.
const adminToken = "the token of the tests"

// call answers one request. A request that begins with GET has no body. Each header is "Name:
// value", and replaces that of newRequest.
func call(s *httpapi.Server, request, body string, headers ...string) *fasthttp.RequestCtx {
	ctx := newRequest(request, body)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		ctx.Request.Header.Set(name, value)
	}
	s.Handle(ctx)
	return ctx
}

func newRequest(request, body string) *fasthttp.RequestCtx {
	ctx := new(fasthttp.RequestCtx)
	method, uri, _ := strings.Cut(request, " ")
	ctx.Request.Header.SetMethod(method)
	ctx.Request.SetRequestURI(uri)
	if strings.HasPrefix(uri, "/v1/admin/") || method == "PUT" {
		ctx.Request.Header.Set("Authorization", "Bearer "+adminToken)
	}
	if method == "PUT" {
		ctx.Request.Header.Set("If-Match", `"0"`)
	}
	if method == "POST" || method == "PUT" {
		ctx.Request.Header.SetContentType("application/json")
		ctx.Request.SetBodyString(body)
	}
	return ctx
}

// decode decodes JSON like a standard client.
func decode(t testing.TB, body []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(body, into); err != nil {
		t.Errorf("%v in %s", err, body)
	}
}

func TestAnswers(t *testing.T) {
	tests := []struct{ name, request, body, want string }{
		{"add", "POST /v1/add", `{"key":"k","n":2}`,
			`{"key":"k","counts":[],"over":false,"source":"memory"}`},
		{"add with limits", "POST /v1/add",
			`{"key":"k","n":2,"limits":[{"window":"1m30s","max":12},{"max":11,"window":"24h"}]}`,
			`{"key":"k","counts":[{"window":"1m30s","count":12,"min":12,"max":12},{"window":"24h","count":12,"min":12,"max":12}],"over":true,"source":"memory"}`},
		{"add takes back", "POST /v1/add", `{"key":"k","n":-3,"limits":[{"window":"1m","max":99}]}`,
			`{"key":"k","counts":[{"window":"1m","count":7,"min":7,"max":7}],"over":false,"source":"memory"}`},
		{"add escapes", "POST /v1/add", `{"key":"a\"\u00e9\ud83d\ude00\\b"}`,
			`{"key":"a\"é😀\\b","counts":[],"over":false,"source":"memory"}`},
		{"count", "GET /v1/count?key=k&window=1m,37m,1d&ns=a.b&at=1700000000000", "",
			`{"key":"k","counts":[{"window":"1m","count":10,"min":10,"max":10,"bucket_ms":1000},{"window":"37m","count":10,"min":10,"max":10,"bucket_ms":1000},{"window":"1d","count":10,"min":10,"max":10,"bucket_ms":1000}],"source":"memory","age_ms":7,"degraded":false}`},
		{"acquire", "POST /v1/acquire",
			`{"key":"k","limits":[{"window":"1m","max":15},{"window":"24h","max":50}]}`,
			`{"allowed":true,"limits":[{"window":"1m","max":15,"count":11,"remaining":4},{"window":"24h","max":50,"count":11,"remaining":39}],"retry_after_ms":0,"source":"memory"}`},
		{"acquire of a hot key", "POST /v1/acquire",
			`{"key":"hot","limits":[{"window":"1m","max":15}]}`,
			`{"allowed":true,"limits":[{"window":"1m","max":15,"count":1,"remaining":14,"lent":5}],"retry_after_ms":0,"source":"memory"}`},
		{"acquire refused", "POST /v1/acquire",
			`{"key":"k","limits":[{"window":"1m","max":15},{"window":"24h","max":9}]}`,
			`{"allowed":false,"limits":[{"window":"1m","max":15,"count":10,"remaining":5},{"window":"24h","max":9,"count":10,"remaining":0,"refused":true}],"refused_by":["limits[1]"],"retry_after_ms":1500,"source":"memory"}`},
		{"acquire never", "POST /v1/acquire",
			`{"key":"k","n":6,"limits":[{"window":"1m","max":5}]}`,
			`{"allowed":false,"limits":[{"window":"1m","max":5,"count":10,"remaining":0,"refused":true}],"refused_by":["limits[0]"],"retry_after_ms":-1,"source":"memory"}`},
		{"acquire checks", "POST /v1/acquire",
			`{"checks":[{"key":"fresh","limits":[{"window":"1m","max":1}]},{"ns":"x","key":"k","n":2,"limits":[{"window":"1h","max":11}]}]}`,
			`{"allowed":false,"checks":[{"key":"fresh","allowed":true,"limits":[{"window":"1m","max":1,"count":0,"remaining":1}],"retry_after_ms":0},{"key":"k","allowed":false,"limits":[{"window":"1h","max":11,"count":10,"remaining":1,"refused":true}],"retry_after_ms":1500}],"refused_by":["checks[1].limits[0]"],"retry_after_ms":1500,"source":"memory"}`},
		{"batch", "POST /v1/batch",
			`{"ops":[{"key":"k","op":"add"},{"op":"count","key":"k","window":"1m"},{"op":"count","key":"k","window":["1m","1h"],"at":5},{"op":"nonsense"},{"op":"acquire","key":"k","limits":[{"window":"1m","max":3}]}]}`,
			`{"results":[{"key":"k","counts":[],"over":false,"source":"memory"},` +
				`{"key":"k","counts":[{"window":"1m","count":11,"min":11,"max":11,"bucket_ms":1000}],"source":"memory","age_ms":7,"degraded":false},` +
				`{"key":"k","counts":[{"window":"1m","count":11,"min":11,"max":11,"bucket_ms":1000},{"window":"1h","count":11,"min":11,"max":11,"bucket_ms":1000}],"source":"memory","age_ms":7,"degraded":false},` +
				`{"error":{"type":"urn:twotier:problem:refused","title":"Request refused","status":422,"detail":"op: want \"add\", \"count\", \"acquire\" or \"distinct\", got \"nonsense\""}},` +
				`{"allowed":false,"limits":[{"window":"1m","max":3,"count":11,"remaining":0,"refused":true}],"refused_by":["limits[0]"],"retry_after_ms":1500,"source":"memory"}]}`},
		{"batch quiet", "POST /v1/batch",
			`{"quiet":true,"ops":[{"key":"k","op":"add"},{"op":"add"},{"op":"acquire","key":"k","limits":[{"window":"1m","max":3}]},{"op":"acquire","key":"k","limits":[{"window":"1m","max":300}]}]}`,
			`{"ops":4,"errors":[{"index":1,"error":{"type":"urn:twotier:problem:refused","title":"Request refused","status":422,"detail":"key: missing; want 1 to 256 bytes of UTF-8 without control characters"}}],"added":1,"allowed":1,"refused":1}`},
		{"batch quiet of values", "POST /v1/batch", `{"quiet":true,"ops":[{"op":"add","key":"k"},` +
			`{"op":"distinct","key":"k","values":["a","b"]},` +
			`{"op":"distinct","key":"k","values":["a","b"],"rules":["devices"]},` +
			`{"op":"distinct","key":"l","values":["a","b"],"rules":["devices-tight"]},` +
			`{"op":"distinct","key":"k","values":["a","b"],"limits":[{"window":"1h","max":1}]},` +
			`{"op":"distinct","key":"k","window":"1h"}]}`,
			`{"ops":6,"errors":[],"added":2,"allowed":2,"refused":1,"rules_version":7}`},
		// At 22:13:20 UTC on 14 November 2023.
		{"calendar: object", "POST /v1/acquire",
			`{"key":"k","ts":1700000000000,"limits":[{"zone":"Europe/Lisbon","window":"month","anchor":14,"max":15}]}`,
			`{"allowed":true,"limits":[{"window":"month.14@Europe/Lisbon","max":15,"count":11,"remaining":4,"start":1699920000000,"end":1702512000000}],"retry_after_ms":0,"source":"memory"}`},
		{"calendar: default zone and anchor", "POST /v1/acquire",
			`{"key":"k","ts":1700000000000,"limits":[{"window":"day","max":10},{"window":"week","zone":"UTC","max":20}]}`,
			`{"allowed":false,"limits":[{"window":"day","max":10,"count":10,"remaining":0,"start":1699920000000,"end":1700006400000,"refused":true},{"window":"week","max":20,"count":10,"remaining":10,"start":1699833600000,"end":1700438400000}],"refused_by":["limits[0]"],"retry_after_ms":1500,"source":"memory"}`},
		{"calendar: rule", "POST /v1/acquire", `{"key":"l","ts":1700000000000,"rules":["monthly"]}`,
			`{"allowed":true,"limits":[{"window":"month@Asia/Tokyo","max":3,"count":1,"remaining":2,"start":1698764400000,"end":1701356400000,"rule":"monthly"}],"retry_after_ms":0,"source":"memory","rules_version":7}`},
		{"calendar: as spelled", "POST /v1/add",
			`{"key":"k","ts":1700000000000,"limits":[{"window":"day.00@Asia/Shanghai","max":99}]}`,
			`{"key":"k","counts":[{"window":"day.00@Asia/Shanghai","count":11,"min":11,"max":11,"start":1699977600000,"end":1700064000000}],"over":false,"source":"memory"}`},
		{"calendar: count", "GET /v1/count?key=k&window=1m,day@Asia/Shanghai&at=1700000000000", "",
			`{"key":"k","counts":[{"window":"1m","count":10,"min":10,"max":10,"bucket_ms":1000},{"window":"day@Asia/Shanghai","count":10,"min":10,"max":10,"bucket_ms":1000,"start":1699977600000,"end":1700064000000}],"source":"memory","age_ms":7,"degraded":false}`},
		{"calendar: batch", "POST /v1/batch",
			`{"ops":[{"op":"count","key":"k","window":["hour@Asia/Kathmandu"],"at":1700000000000},{"op":"acquire","key":"k","dry_run":true,"ts":1700000000000,"limits":[{"window":"hour","zone":"Asia/Kathmandu","max":11}]}]}`,
			`{"results":[{"key":"k","counts":[{"window":"hour@Asia/Kathmandu","count":10,"min":10,"max":10,"bucket_ms":1000,"start":1699996500000,"end":1700000100000}],"source":"memory","age_ms":7,"degraded":false},` +
				`{"allowed":true,"limits":[{"window":"hour@Asia/Kathmandu","max":11,"count":11,"remaining":0,"start":1699996500000,"end":1700000100000}],"retry_after_ms":0,"source":"memory"}]}`},
		{"batch of none", "POST /v1/batch", `{"ops":[]}`, `{"results":[]}`},
		{"series", "GET /v1/series?key=k&window=1m", "",
			`{"key":"k","bucket_ms":1000,"points":[[1000,3],[2000,4]]}`},
		{"top", "GET /v1/top", "",
			`{"window":"1m","keys":[{"ns":"default","key":"a\"b","count":9},{"ns":"x","key":"c","count":3}]}`},
		{"most refused", "GET /v1/top?by=refused", "",
			`{"window":"1m","keys":[{"ns":"sms","key":"r","count":7}]}`},
		{"top one", "GET /v1/top?n=1&window=1h", "",
			`{"window":"1h","keys":[{"ns":"default","key":"a\"b","count":9}]}`},
		{"in shadow", "GET /v1/top?by=shadow", "",
			`{"window":"1m","keys":[{"ns":"sms","key":"t","count":5}]}`},
		{"most open", "GET /v1/top?by=concurrent&n=1", "",
			`{"keys":[{"ns":"sms","key":"u","count":4}]}`},
		{"holds", "GET /v1/holds?key=k%22&ns=sms", "",
			`{"key":"k\"","open":3,"next_end_ms":40,"source":"memory","degraded":false}`},
		{"reset", "POST /v1/reset", `{"key":"k"}`, `{"key":"k","reset":true}`},
		{"healthz", "GET /healthz", "", `{"live":true}`},
		{"readyz", "GET /readyz", "",
			`{"ready":true,"degraded":false,"unflushed_age_ms":0,"max_lag_ms":0,"waiting":0}`},
		{"head", "HEAD /healthz", "", `{"live":true}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake()
			f.set([]byte("k"), 10)
			f.points = []twotier.Point{{Start: 1000, Count: 3}, {Start: 2000, Count: 4}}
			f.open = twotier.OpenLeases{Open: 3, NextEnd: 40, Source: f.source}
			f.top = map[string][]twotier.KeyCount{
				"count":      {{NS: "default", Key: `a"b`, Count: 9}, {NS: "x", Key: "c", Count: 3}},
				"refused":    {{NS: "sms", Key: "r", Count: 7}},
				"shadow":     {{NS: "sms", Key: "t", Count: 5}},
				"concurrent": {{NS: "sms", Key: "u", Count: 4}, {NS: "sms", Key: "v", Count: 1}}}
			ctx := call(newServer(t, f), tt.request, tt.body)
			if got := string(ctx.Response.Body()); ctx.Response.StatusCode() != 200 ||
				got != tt.want {
				t.Errorf("%d\n got %s\nwant %s", ctx.Response.StatusCode(), got, tt.want)
			}
			if got := string(ctx.Response.Header.ContentType()); got != "application/json" {
				t.Errorf("content type %q", got)
			}
		})
	}
}

// TestOperationReachesService looks for what FuzzOp does not compare.
func TestOperationReachesService(t *testing.T) {
	f := newFake()
	s := newServer(t, f)
	call(s, "POST /v1/acquire", `{"charge":true,"key":"k","limits":[{"window":"1m","max":9}]}`)
	if op := f.last; !op.Charge || op.DryRun || op.Checks[0].N != 1 {
		t.Errorf("a charge is %+v", op)
	}
	call(s, "POST /v1/acquire", `{"n":0,"key":"k","limits":[{"window":"1m","max":9}]}`)
	if op := f.last; op.Charge || !op.DryRun || op.Checks[0].N != 0 {
		t.Errorf("an acquire of 0 events is %+v", op)
	}
}

func TestDegradedIsSaid(t *testing.T) {
	f := newFake()
	f.soft, f.source = true, twotier.SourceDegraded
	s := newServer(t, f)
	for request, body := range map[string]string{
		"POST /v1/add":     `{"key":"k"}`,
		"POST /v1/acquire": `{"key":"k","limits":[{"window":"1m","max":3}]}`,
	} {
		if got := string(call(s, request, body).Response.Body()); !strings.HasSuffix(got,
			`"source":"degraded","degraded":true}`) {
			t.Errorf("%s: %s", request, got)
		}
	}
	if got := string(call(s, "GET /readyz",
		"").
		Response.Body()); got != `{"ready":true,"degraded":true,"reasons":["Redis: is \"away\"","time"],"unflushed_age_ms":0,"max_lag_ms":0,"waiting":0}` {
		t.Error(got)
	}
}

func TestDeny429(t *testing.T) {
	tests := []struct{ body, status, retry, policy, limit string }{
		{`{"key":"k","limits":[{"window":"1m","max":12},{"window":"1500ms","max":50}]}`, "200", "",
			`"limits[0]";q=12;w=60, "limits[1]";q=50;w=2`, `"limits[0]";r=1, "limits[1]";r=39`},
		{`{"key":"k","limits":[{"window":"1m","max":10},{"window":"24h","max":50}]}`, "429", "2",
			`"limits[0]";q=10;w=60, "limits[1]";q=50;w=86400`,
			`"limits[0]";r=0;t=2, "limits[1]";r=40`},
		{`{"key":"k","n":11,"limits":[{"window":"1m","max":10}]}`, "429", "",
			`"limits[0]";q=10;w=60`, `"limits[0]";r=0`},
		{`{"checks":[{"key":"x","limits":[{"window":"1m","max":10}]},{"key":"k","limits":[{"window":"1h","max":10}]}]}`, "429", "2",
			`"checks[1].limits[0]";q=10;w=3600`, `"checks[1].limits[0]";r=0;t=2`},
	}
	for _, tt := range tests {
		f := newFake()
		f.set([]byte("k"), 10)
		ctx := call(newServer(t, f), "POST /v1/acquire?deny=429", tt.body)
		h := &ctx.Response.Header
		got := fmt.Sprint(ctx.Response.StatusCode(), "|", string(h.Peek("Retry-After")), "|",
			string(h.Peek("RateLimit-Policy")), "|", string(h.Peek("RateLimit")))
		want := strings.Join([]string{tt.status, tt.retry, tt.policy, tt.limit}, "|")
		if got = strings.ReplaceAll(got, " |", "|"); strings.ReplaceAll(got, "| ", "|") != want {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
	}
}

func TestServiceErrors(t *testing.T) {
	tests := []struct {
		err           error
		request, body string
		status        int
		want          string
		retry         bool
	}{
		{fmt.Errorf("load: %w", twotier.ErrUnavailable), "POST /v1/add", `{"key":"k"}`, 503,
			`"detail":"load: unavailable"}`, true},
		{fmt.Errorf("node b: %w", rpc.ErrUnreachable), "POST /v1/reset", `{"key":"k"}`, 503,
			`"detail":"node b: the node can't be reached"}`, true},
		{twotier.ErrClosed, "POST /v1/add", `{"key":"k"}`, 503, `"detail":"closed"}`, true},
		{twotier.ErrOverload, "POST /v1/add", `{"key":"k"}`, 429, `"detail":"overloaded"}`, true},
		{twotier.ErrUnknownOutcome, "POST /v1/add", `{"key":"k"}`, 503,
			`"detail":"unknown outcome","outcome":"unknown"}`, true},
		{context.DeadlineExceeded, "POST /v1/add", `{"key":"k"}`, 503,
			`"outcome":"unknown"}`, true},
		{context.DeadlineExceeded, "GET /v1/count?key=k&window=1m", "", 503,
			`"detail":"no answer in time"}`, true},
		{context.DeadlineExceeded, "GET /v1/series?key=k&window=1m", "", 503,
			`"detail":"no answer in time"}`, true},
		{context.DeadlineExceeded, "POST /v1/reset", `{"key":"k"}`, 503,
			`"outcome":"unknown"}`, true},
		{errors.New("boom"), "POST /v1/add", `{"key":"k"}`, 500,
			`"detail":"an error of this server's own; its log says more"}`, false},
		{&twotier.InvalidError{Check: 0, Limit: 1, Field: "window", Detail: "25h is too long"},
			"POST /v1/acquire",
			`{"key":"k","limits":[{"window":"1m","max":1},{"window":"25h","max":1}]}`, 422,
			`"detail":"limits[1].window: 25h is too long"}`, false},
		{&twotier.InvalidError{Check: 0, Limit: 0, Field: "window", Detail: "25h is too long"},
			"POST /v1/acquire",
			`{"checks":[{"key":"k","limits":[{"window":"25h","max":1}]}]}`, 422,
			`"detail":"checks[0].limits[0].window: 25h is too long"}`, false},
		{&twotier.InvalidError{Check: -1, Limit: 1, Field: "window", Detail: "25h is too long"},
			"POST /v1/acquire",
			`{"checks":[{"key":"k","limits":[{"window":"1m","max":1},{"window":"25h","max":1}]}]}`,
			422, `"detail":"checks[0].limits[1].window: 25h is too long"}`, false},
		{&twotier.InvalidError{Check: -1, Limit: -1, Field: "ts", Detail: "too old"},
			"POST /v1/acquire",
			`{"checks":[{"key":"k","limits":[{"window":"1m","max":1}]}],"ts":5}`, 422,
			`"detail":"ts: too old"}`, false},
		{&twotier.InvalidError{Check: 0, Limit: 0, Field: "window", Detail: "25h is too long"},
			"GET /v1/count?key=k&window=25h", "", 422,
			`"detail":"window: 25h is too long"}`, false},
		{&twotier.InvalidError{Check: -1, Limit: -1, Field: "ts", Detail: "too old"},
			"GET /v1/count?key=k&window=1h&at=5", "", 422, `"detail":"at: too old"}`, false},
		{&twotier.InvalidError{Check: 0, Limit: 0, Field: "window", Detail: "too long"},
			"GET /v1/top?window=25h", "", 422, `"detail":"window: too long"}`, false},
	}
	for _, tt := range tests {
		f := newFake()
		f.err = tt.err
		ctx := call(newServer(t, f), tt.request, tt.body)
		got := string(ctx.Response.Body())
		retry := len(ctx.Response.Header.Peek("Retry-After")) > 0
		if ctx.Response.StatusCode() != tt.status || !strings.HasSuffix(got, tt.want) ||
			retry != tt.retry {
			t.Errorf("%v on %s: %d retry %v %s", tt.err, tt.request, ctx.Response.StatusCode(),
				retry, got)
		}
		if got := string(ctx.Response.Header.ContentType()); got != "application/problem+json" {
			t.Errorf("content type %q", got)
		}
	}
}

// TestRetryAfterIsAnEstimate: if the duration of an overload is known, the answer reports it,
// within bounds.
func TestRetryAfterIsAnEstimate(t *testing.T) {
	for after, want := range map[time.Duration]string{
		time.Microsecond: "1|1", 999 * time.Millisecond: "1|999", 2350 * time.Millisecond: "3|2350",
		time.Hour: "60|60000", -time.Hour: "1|1",
	} {
		f := newFake()
		f.err = fmt.Errorf("node b: %w", &twotier.RetryError{Err: twotier.ErrBehind, After: after})
		for request, body := range map[string]string{
			"POST /v1/add":   `{"key":"k"}`,
			"POST /v1/batch": `{"ops":[{"op":"add","key":"k"}]}`,
		} {
			ctx := call(newServer(t, f), request, body)
			seconds, ms, _ := strings.Cut(want, "|")
			got := string(ctx.Response.Header.Peek("Retry-After"))
			if request == "POST /v1/batch" {
				seconds = ""
			}
			if text := string(ctx.Response.Body()); got != seconds ||
				!strings.Contains(text, `"status":429`) ||
				!strings.Contains(text, `"retry_after_ms":`+ms+"}") {
				t.Errorf("%v, %s: Retry-After %q and %s, want %s", after, request, got, text, want)
			}
		}
	}
}

func TestNotReady(t *testing.T) {
	f := newFake()
	f.ready = errors.New("joining")
	status(t, call(newServer(t, f), "GET /readyz", ""), 503, `"detail":"joining"`)
}

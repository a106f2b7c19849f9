package httpapi_test

import (
	"encoding/json"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/warning"
)

// refusal is a request and the expected error.
type refusal struct {
	request, body string
	status        int
	detail        string
}

// What several refusals say.
const (
	wantKey = "want 1 to 256 bytes of UTF-8 without control characters"
	wantNS  = "want 1 to 64 of A-Z, a-z, 0-9, '_', '.' and '-'"
	unknown = ": unknown field; add has ns, key, n, ts, ack, limits and rules"
	wantN   = "n: want 1 to 2147483647, or -1 to -2147483647 to take back"
)

const (
	add     = "POST /v1/add"
	acquire = "POST /v1/acquire"
	batch   = "POST /v1/batch"
)

var malformed = []refusal{
	{add, ``, 400, `malformed JSON at byte 0: want a value, got the end`},
	{add, `nope`, 400, `malformed JSON at byte 0: want a value, got 'n'`},
	{add, `null`, 422, `want an object, got null`},
	{add, `{`, 400, `malformed JSON at byte 1: want a field name in quotes, got the end`},
	{add, `{"key":"k"`, 400, `malformed JSON at byte 10: want ',' or '}', got the end`},
	{add, `{"key":"k",}`, 400, `malformed JSON at byte 11: want a field name in quotes, got '}'`},
	{add, `{"key" "k"}`, 400, `malformed JSON at byte 7: want ':', got '"'`},
	{add, `{"key":"k"} x`, 400, `malformed JSON at byte 12: want nothing more, got 'x'`},
	{add, `{"key":"k"}{}`, 400, `malformed JSON at byte 11: want nothing more, got '{'`},
	{add, `{key:1}`, 400, `malformed JSON at byte 1: want a field name in quotes, got 'k'`},
	{add, `{"key":"k`, 400,
		`malformed JSON at byte 9: want the closing quote of a string, got the end`},
	{add, "{\"key\":\"a\nb\"}", 400,
		`malformed JSON at byte 9: want no control character in a string, got '\n'`},
	{add, "{\"key\":\"a\xffb\"}", 400, `malformed JSON at byte 9: invalid UTF-8`},
	{add, `{"key":"a\qb"}`, 400, `malformed JSON at byte 10: want one of "\/bfnrtu, got 'q'`},
	{add, `{"key":"\u12x4"}`, 400, `malformed JSON at byte 12: want a hexadecimal digit, got 'x'`},
	{add, `{"key":"\ud800"}`, 400, `malformed JSON at byte 8: half a surrogate pair`},
	{add, `{"key":"\ud83d\u0041"}`, 400, `malformed JSON at byte 8: half a surrogate pair`},
	{add, `{"key":"\udc00\ud800"}`, 400, `malformed JSON at byte 8: half a surrogate pair`},
	{add, `{"key":"k","n":01}`, 400,
		`malformed JSON at byte 16: want no digit after a leading zero, got '1'`},
	{add, `{"key":"k","n":-}`, 400, `malformed JSON at byte 16: want a digit, got '}'`},
	{add, `{"key":"k","n":+1}`, 400, `malformed JSON at byte 15: want a value, got '+'`},
	{add, `{"key":"k","n":1.}`, 400, `malformed JSON at byte 17: want a digit, got '}'`},
	{add, `{"key":"k","n":1e}`, 400, `malformed JSON at byte 17: want a digit, got '}'`},
	{add, `{"key":"k","n":}`, 400, `malformed JSON at byte 15: want a value, got '}'`},
	{add, `{"colour":1,}`, 400, `malformed JSON at byte 12: want a field name in quotes, got '}'`},
	{add, `{"n":"x","key":}`, 400, `malformed JSON at byte 15: want a value, got '}'`},
	{add, "\x00{}", 400, `malformed JSON at byte 0: want a value, got '\x00'`},
	{acquire, `{"key":"k","limits":[{"window":"1m","max":1},]}`, 400,
		`malformed JSON at byte 45: want a value, got ']'`},
	{acquire, `{"key":"k","count_denied":truth}`, 400,
		`malformed JSON at byte 26: want true or false, got 't'`},
	{batch, `{"ops":[{"op":"add","key":"k"},{"op":"add","key":"k"]}`, 400,
		`malformed JSON at byte 52: want ',' or '}', got ']'`},
	{batch, `{"ops":[{"op":"bad","x":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) +
		`}]}`, 400, `malformed JSON at byte 223: nested too deeply`},
	{"POST /v1/reset", `{"key":"k"`, 400,
		`malformed JSON at byte 10: want ',' or '}', got the end`},
}

var refusedFields = []refusal{
	{add, `[]`, 422, `want an object, got an array`},
	{add, `{}`, 422, `key: missing; ` + wantKey},
	{add, `{"key":"k","colour":"red"}`, 422, `colour` + unknown},
	{add, `{"key":"k","` + strings.Repeat("x", 100) + `":1}`, 422, strings.Repeat("x", 64) +
		`...: unknown field; add has ns, key, n, ts, ack, limits and rules`},
	{add, `{"key":"k","op":"add"}`, 422, `op` + unknown},
	{add, `{"key":"k","checks":[]}`, 422, `checks` + unknown},
	{add, `{"key":"k","Key":"k"}`, 422, `Key` + unknown},
	{add, `{"key":"k","key":"l"}`, 422, `key: given twice`},
	{add, `{"key":"k","\u006bey":"l"}`, 422, `key: given twice`},
	{add, `{"key":1}`, 422, `key: want a string, got a number`},
	{add, `{"key":null}`, 422, `key: want a string, got null`},
	{add, `{"key":""}`, 422, `key: ` + wantKey},
	{add, `{"key":"` + strings.Repeat("k", 257) + `"}`, 422, `key: ` + wantKey},
	{add, `{"key":"a\u0000"}`, 422, `key: ` + wantKey},
	{add, "{\"key\":\"a\x7f\"}", 422, `key: ` + wantKey},
	{add, `{"key":"a\u0085"}`, 422, `key: ` + wantKey},
	{add, `{"key":"k","ns":""}`, 422, `ns: ` + wantNS},
	{add, `{"key":"k","ns":"a b"}`, 422, `ns: ` + wantNS},
	{add, `{"key":"k","n":0}`, 422, wantN},
	{add, `{"key":"k","n":2147483648}`, 422, wantN},
	{add, `{"key":"k","n":-2147483648}`, 422, wantN},
	{add, `{"key":"k","n":99999999999999999999}`, 422,
		`n: want a whole number, got one that is too large`},
	{add, `{"key":"k","n":1e3}`, 422, `n: want a whole number, got 1e3`},
	{add, `{"key":"k","n":1.5}`, 422, `n: want a whole number, got 1.5`},
	{add, `{"key":"k","n":true}`, 422, `n: want a whole number, got a boolean`},
	{add, `{"key":"k","ts":0}`, 422, `ts: want unix milliseconds, at least 1`},
	{add, `{"key":"k","ack":"tape"}`, 422,
		`ack: want "memory", "redis", "replica" or "disk", got "tape"`},
	{add, `{"key":"k","limits":{}}`, 422, `limits: want a list of limits, got an object`},
	{add, `{"key":"k","limits":[1]}`, 422,
		`limits[0]: want an object with window and max, got a number`},
	{add, `{"key":"k","limits":[{"max":1}]}`, 422,
		`limits[0].window: missing; want a duration such as "90s" or "1d2h3m4s", or a calendar window such as "day" or "month@Europe/Lisbon"`},
	{add, `{"key":"k","limits":[{"window":"1m"}]}`, 422,
		`limits[0].max: missing; want a whole number`},
	{acquire, `{"key":"k","limits":[{"window":"1m","max":1},{"window":"1h","max":"2"}]}`, 422,
		`limits[1].max: want a whole number, got a string`},
	{acquire, `{"key":"k","limits":[{"window":"1m","max":-1}]}`, 422,
		`limits[0].max: want 0 or more`},
	{acquire, `{"key":"k","limits":[{"window":"1m","max":1,"min":0}]}`, 422,
		`limits[0].min: unknown field; a limit has window and max, and a calendar window also zone and anchor; or it has concurrent`},
	{acquire, `{"key":"k","limits":[{"window":"1m","max":1,"max":1}]}`, 422,
		`limits[0].max: given twice`},
	{acquire, `{"key":"k","limits":[{"window":60,"max":1}]}`, 422,
		`limits[0].window: want a duration such as "90s" or "1d2h3m4s", or a calendar window such as "day" or "month@Europe/Lisbon", got a number`},
	{acquire, `{"key":"k","limits":[{"window":"1 m","max":1}]}`, 422,
		`limits[0].window: want a duration such as "90s" or "1d2h3m4s", got "1 m"`},
	{acquire, `{"key":"k","limits":[{"window":"0s","max":1}]}`, 422,
		`limits[0].window: want a whole number of milliseconds, at least 1ms, got "0s"`},
	{acquire, `{"key":"k","limits":[{"window":"1500us","max":1}]}`, 422,
		`limits[0].window: want a whole number of milliseconds, at least 1ms, got "1500us"`},
	{acquire, `{"key":"k","limits":[{"window":"106752d","max":1}]}`, 422,
		`limits[0].window: longer than 106751 days, got "106752d"`},
	{acquire, `{"key":"k"}`, 422, `limits: missing; want at least one limit, or rules`},
	{acquire, `{"key":"k","limits":[]}`, 422, `limits: missing; want at least one limit, or rules`},
	{acquire, `{"key":"k","n":-1,"limits":[{"window":"1m","max":1}]}`, 422,
		`n: want 0 to 2147483647`},
	{acquire, `{"key":"k","limits":[` + strings.Repeat(`{"window":"1m","max":1},`, 16) +
		`{"window":"1m","max":1}]}`, 422, `limits: want at most 16 limits`},
	{acquire, `{"checks":[]}`, 422, `checks: want at least one check`},
	{acquire, `{"checks":[` + strings.Repeat(`{"key":"k","limits":[{"window":"1m","max":1}]},`,
		64) + `{}]}`, 422, `checks: want at most 64 checks`},
	{acquire, `{"checks":[{"key":"k","limits":[{"window":"1m","max":1}]},{"key":"k"}]}`, 422,
		`checks[1].limits: missing; want at least one limit, or rules`},
	{acquire, `{"checks":[{"limits":[{"window":"1m","max":1}]}]}`, 422,
		`checks[0].key: missing; ` + wantKey},
	{acquire, `{"checks":[{"key":"k","ts":1}]}`, 422,
		`checks[0].ts: unknown field; a check has ns, key, values, n, limits, value_limits and rules`},
	{acquire, `{"checks":[{"key":"k","limits":[{"window":"1m","max":false}]}]}`, 422,
		`checks[0].limits[0].max: want a whole number, got a boolean`},
	{acquire, `{"key":"k","checks":[{"key":"k","limits":[{"window":"1m","max":1}]}]}`, 422,
		`checks: want either checks or key, not both`},
	{acquire, `{"count_denied":1}`, 422, `count_denied: want true or false, got a number`},
	{acquire, `{"window":"1m"}`, 422,
		`window: unknown field; acquire has ns, key, values, n, ts, ack, limits, value_limits, rules, checks, count_denied, charge, dry_run, hold and on_expiry`},
	{batch, `{}`, 422, `ops: missing; want a list of operations`},
	{batch, `{"ops":{}}`, 422, `ops: want a list of operations, got an object`},
	{batch, `{"ops":[],"ops":[]}`, 422, `ops: given twice`},
	{batch, `{"ops":[],"quiet":0}`, 422, `quiet: want true or false, got a number`},
	{batch, `{"ops":[],"loud":0}`, 422, `loud: unknown field; want ops or quiet`},
	{batch, `{"ops":[` + strings.Repeat(`0,`, 10000) + `0]}`, 422,
		`ops: want at most 10000 operations`},
	{"POST /v1/reset", `{}`, 422, `key: missing; ` + wantKey},
	{"POST /v1/reset", `{"key":"k","n":1}`, 422, `n: unknown field; reset has ns and key`},
}

var refusedRequests = []refusal{
	{"GET /v1/count", "", 422, `key: missing; ` + wantKey},
	{"GET /v1/count?key=k", "", 422,
		`window: missing; want a duration such as "90s" or "1d2h3m4s", or a calendar window such as "day" or "month@Europe/Lisbon"`},
	{"GET /v1/count?key=k&window=1m,", "", 422,
		`window: want a duration such as "90s" or "1d2h3m4s", got ""`},
	{"GET /v1/count?key=k&window=1m&windw=2", "", 422,
		`windw: unknown parameter; count has key, ns, window and at`},
	{"GET /v1/count?key=k&window=1m&window=2m", "", 422, `window: given twice`},
	{"GET /v1/count?key=%00&window=1m", "", 422, `key: ` + wantKey},
	{"GET /v1/count?key=%ff&window=1m", "", 422, `key: ` + wantKey},
	{"GET /v1/count?key=k&ns=%20&window=1m", "", 422, `ns: ` + wantNS},
	{"GET /v1/count?key=k&window=1m&at=yesterday", "", 422,
		`at: want unix milliseconds, at least 1`},
	{"GET /v1/count?key=k&window=" + strings.Repeat("1m,", 64) + "1m", "", 422,
		`window: want at most 64 windows`},
	{"GET /v1/series?key=k", "", 422,
		`window: missing; want a duration such as "90s" or "1d2h3m4s"`},
	{"GET /v1/series?window=1m", "", 422, `key: missing; ` + wantKey},
	{"GET /v1/series?key=k&window=1m,2m", "", 422,
		`window: want a duration such as "90s" or "1d2h3m4s", got "1m,2m"`},
	{"GET /v1/top?n=0", "", 422, `n: want 1 to 1000`},
	{"GET /v1/top?n=", "", 422, `n: want 1 to 1000`},
	{"GET /v1/top?n=1001", "", 422, `n: want 1 to 1000`},
	{"GET /v1/top?by=name", "", 422, `by: want count, refused, shadow or concurrent`},
	{"GET /v1/top?prefix=", "", 422, `prefix: ` + wantKey},
	{"GET /v1/top?prefix=%00", "", 422, `prefix: ` + wantKey},
	{"GET /v1/top?prefix=a&prefix=b", "", 422, `prefix: given twice`},
	{"GET /v1/top?by=concurrent&prefix=a", "", 422,
		`prefix: leave it out: concurrent lists the holds of all keys`},
	{"GET /v1/top?by=concurrent&window=1m", "", 422,
		`window: leave it out: concurrent lists the holds that are open now`},
	{"GET /v1/holds?ns=sms", "", 422, `key: missing; ` + wantKey},
	{"GET /v1/holds?key=k&window=1m", "", 422, `window: unknown parameter; holds has key and ns`},
	{"GET /v1/top?key=k", "", 422, `key: unknown parameter; top has n, window, by and prefix`},
	{"POST /v1/acquire?deny=403", "{}", 422, `deny: want 429`},
	{"POST /v1/acquire?dney=429", "{}", 422, `dney: unknown parameter; acquire has deny`},
	{"POST /v1/add?deny=429", "{}", 422, `deny: unknown parameter; this call has none`},
	{"GET /v2/add", "", 404, `nothing is served under this path; /openapi.json lists what is`},
	{"GET /v1/add", "", 405, `want POST`},
	{"POST /v1/count", "{}", 405, `want GET`},
	{"DELETE /v1/reset", "", 405, `want POST`},
}

func TestRefusals(t *testing.T) {
	for _, list := range [][]refusal{malformed, refusedFields, refusedRequests} {
		for _, tt := range list {
			f := newFake()
			ctx := call(newServer(t, f), tt.request, tt.body)
			var p struct {
				Type, Title, Detail string
				Status              int
			}
			decode(t, ctx.Response.Body(), &p)
			if ctx.Response.StatusCode() != tt.status || p.Status != tt.status ||
				p.Detail != tt.detail || p.Type == "" || p.Title == "" {
				t.Errorf("%s %.80s\n got %d %s\nwant %d %s", tt.request, tt.body,
					ctx.Response.StatusCode(), p.Detail, tt.status, tt.detail)
			}
			if got := string(ctx.Response.Header.ContentType()); got != "application/problem+json" {
				t.Errorf("content type %q", got)
			}
			if allow := string(
				ctx.Response.Header.Peek("Allow")); (allow != "") != (tt.status == 405) {
				t.Errorf("%s: Allow %q", tt.request, allow)
			}
			if len(f.counts) != 0 {
				t.Errorf("%s %.80s counted", tt.request, tt.body)
			}
		}
	}
}

func TestMediaTypes(t *testing.T) {
	tests := []struct {
		name, value string
		status      int
	}{
		{"Content-Type", "application/json", 200},
		{"Content-Type", "Application/JSON; charset=utf-8", 200},
		{"Content-Type", "application/x-www-form-urlencoded", 415},
		{"Content-Type", "text/plain", 415},
		{"Content-Type", "application/jsonx", 415},
		{"Content-Type", "", 200},
		{"Origin", "https://elsewhere.example", 415},
		{"Content-Encoding", "gzip", 415},
	}
	for _, tt := range tests {
		got := call(newServer(t, newFake()), "POST /v1/add", `{"key":"k"}`, "Content-Type: ",
			tt.name+": "+tt.value)
		status(t, got, tt.status, "")
	}
}

var _ httpapi.Warnings = (*warning.Log)(nil)

// newWarned returns a server with warnings, which trusts some proxies.
func newWarned(t *testing.T, trusted ...string) (*httpapi.Server, *warning.Log) {
	t.Helper()
	log := warning.NewLog(slog.New(slog.DiscardHandler), time.Now)
	opt := httpapi.Options{Service: newFake(), AdminToken: adminToken, Rules: testRules{},
		RuleBook: newRuleBook(t), Warnings: log}
	for _, network := range trusted {
		opt.TrustedProxies = append(opt.TrustedProxies, netip.MustParsePrefix(network))
	}
	s := serverOf(t, opt)
	return s, log
}

// TestForwardedRequestsShowWarnings sends requests like proxies that forward too little, or are not
// trusted.
func TestForwardedRequestsShowWarnings(t *testing.T) {
	for _, tt := range []struct {
		about, trusted, peer, forwarded, key, want string
	}{
		{"nobody is trusted", "", "127.0.0.1", "203.0.113.7", "ip",
			"forwarded-untrusted 127.0.0.1"},
		{"nobody is trusted, from afar", "", "198.51.100.1", "203.0.113.7", "ip",
			"forwarded-untrusted 198.51.100.1"},
		{"another network is trusted", "10.0.0.0/8", "172.17.0.1", "203.0.113.7", "ip",
			"forwarded-untrusted 172.17.0.1"},
		{"a client makes it up", "10.0.0.0/8", "198.51.100.1", "203.0.113.7", "ip", ""},
		{"nothing is forwarded to nobody", "", "127.0.0.1", "", "ip", ""},
		{"all is well", "127.0.0.0/8", "127.0.0.1", "203.0.113.7", "ip", ""},
		{"two proxies", "127.0.0.0/8", "127.0.0.1", "203.0.113.7, 127.0.0.2", "ip", ""},
		{"nothing is forwarded", "127.0.0.0/8", "127.0.0.1", "", "ip",
			"forwarded-missing 127.0.0.1"},
		{"no address at the end", "127.0.0.0/8", "127.0.0.1", "203.0.113.7, unknown", "ip",
			"forwarded-malformed 127.0.0.1"},
		{"no address behind a proxy", "127.0.0.0/8", "127.0.0.1", "_x, 127.0.0.2", "ip",
			"forwarded-malformed 127.0.0.2"},
		{"the address does not matter", "", "127.0.0.1", "203.0.113.7", "X-User", ""},
		{"no user", "", "127.0.0.1", "", "X-Missing", "no-key-source key=X-Missing"},
		{"no user, but an address", "", "127.0.0.1", "", "X-Missing,ip", ""},
		{"a secret", "", "127.0.0.1", "", "plain:Authorization",
			"secret-key key=plain:Authorization"},
		{"a hashed secret", "", "127.0.0.1", "", "Authorization", ""},
		{"a plain header", "", "127.0.0.1", "", "plain:X-User", ""},
	} {
		var trusted []string
		if tt.trusted != "" {
			trusted = append(trusted, tt.trusted)
		}
		s, log := newWarned(t, trusted...)
		for range 2 {
			ctx := newRequest("GET /v1/forward-auth?rule=login&key="+tt.key, "")
			ctx.SetRemoteAddr(&net.TCPAddr{IP: net.ParseIP(tt.peer), Port: 1234})
			ctx.Request.Header.Set("X-User", "bob")
			ctx.Request.Header.Set("Authorization", "Bearer "+adminToken)
			if tt.forwarded != "" {
				ctx.Request.Header.Set("X-Forwarded-For", tt.forwarded)
			}
			s.Handle(ctx)
			status(t, ctx, 200, "")
		}
		var got []string
		for _, w := range log.List() {
			got = append(got, string(w.Code)+" "+w.At)
		}
		if all := strings.Join(got, ", "); all != tt.want {
			t.Errorf("%s: warns of %q, want %q", tt.about, all, tt.want)
		}
	}
}

// TestWarningsAreAnswered reads the warnings of a node, and of a document that is put in force.
func TestWarningsAreAnswered(t *testing.T) {
	s, log := newWarned(t)
	status(t, call(s, "GET /v1/rules?warnings=true", ""), 200, `{"version":0,"warnings":[]}`)
	got := call(s, "GET /v1/rules", "")
	if n := got.Response.Header.Peek("Twotier-Warnings"); n != nil {
		t.Errorf("%s warnings", n)
	}
	ofRules := warning.Warning{Code: warning.CoarseWindow, At: "rules:2:28", Reason: `"why"`,
		Instead: "this"}
	log.Replace(warning.Rules, []warning.Warning{ofRules})
	log.Replace(warning.Settings, []warning.Warning{{Code: warning.NoEffect, At: "--max-lag"}})
	var answer struct {
		Version  int
		Warnings []warning.Warning
	}
	got = put(s, `"0"`, oneRule)
	status(t, got, 200, `{"version":1,`)
	if err := json.Unmarshal(got.Response.Body(), &answer); err != nil ||
		len(answer.Warnings) != 1 || answer.Warnings[0] != ofRules {
		t.Errorf("PUT: %v, %v", answer, err)
	}
	got = call(s, "GET /v1/rules?warnings=true", "")
	if err := json.Unmarshal(got.Response.Body(), &answer); err != nil || answer.Version != 1 ||
		len(answer.Warnings) != 2 || answer.Warnings[0] != ofRules {
		t.Errorf("GET: %v, %v", answer, err)
	}
	for _, accept := range []string{"application/json", "application/yaml"} {
		ctx := call(s, "GET /v1/rules", "", "Accept: "+accept)
		if n := ctx.Response.Header.Peek("Twotier-Warnings"); string(n) != "2" {
			t.Errorf("%s: %s warnings, want 2", accept, n)
		}
	}
	status(t, call(s, "GET /v1/rules?warnings=1", ""), 422, "warnings: want true")
	status(t, call(s, "GET /v1/rules?warnings=true&version=1", ""), 422, "not both")
	status(t, call(s, "GET /v1/rules?warnings=true&history=true", ""), 422,
		"want one of limits, history and warnings")
}

package httpapi_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/refusallog"
	"twotier.dev/twotier/internal/rulebook"
	"twotier.dev/twotier/internal/rules"
)

var _ httpapi.RuleBook = (*rulebook.Keeper)(nil)

// newRuleBook returns a rule book without a version. It refuses windows of more than a day.
func newRuleBook(t testing.TB) *rulebook.Keeper {
	k := rulebook.New(rulebook.Options{Store: new(rulebook.Memory), Book: new(rules.Book),
		Timeout: time.Minute, Logger: slog.New(slog.DiscardHandler),
		Check: func(d *rules.Document) error {
			return d.EachWindow(func(_ string, ms int64) error {
				if ms > 24*time.Hour.Milliseconds() {
					return errors.New("too long")
				}
				return nil
			})
		}})
	k.Open(t.Context())
	t.Cleanup(k.Close)
	return k
}

// put puts a document in place of a version. An empty match sends no If-Match.
func put(s *httpapi.Server, match, document string) *fasthttp.RequestCtx {
	ctx := newRequest("PUT /v1/rules", document)
	ctx.Request.Header.SetContentType("application/yaml")
	ctx.Request.Header.Del("If-Match")
	if match != "" {
		ctx.Request.Header.Set("If-Match", match)
	}
	s.Handle(ctx)
	return ctx
}

// status fails the test unless an answer has that status and text in its body.
func status(t *testing.T, ctx *fasthttp.RequestCtx, code int, text string) {
	t.Helper()
	if got := ctx.Response.StatusCode(); got != code ||
		!strings.Contains(string(ctx.Response.Body()), text) {
		t.Errorf("%s %s: %d %s, want %d and %s", ctx.Method(), ctx.RequestURI(), got,
			ctx.Response.Body(), code, text)
	}
}

func etag(ctx *fasthttp.RequestCtx) string { return string(ctx.Response.Header.Peek("ETag")) }

const oneRule = "rules: # of the tests\n- {name: a, limits: [1/1m]}\n"

func TestPutAndShowRules(t *testing.T) {
	s := newServer(t, newFake())
	got := call(s, "GET /v1/rules", "")
	status(t, got, 200, "{}")
	if etag(got) != `"0"` {
		t.Errorf("ETag %s before the first version", etag(got))
	}
	got = put(s, `"0"`, oneRule)
	status(t, got, 200, `{"version":1,"who":"--admin-token","at":1`)
	if etag(got) != `"1"` {
		t.Errorf("ETag %s", etag(got))
	}
	status(t, call(s, "GET /v1/rules", ""), 200, `{"rules":[{"name":"a","limits":["1/1m"]}]}`)
	for accept, want := range map[string]string{"application/yaml": oneRule,
		"application/json": `{"rules"`, "application/yaml, application/json;q=0.5": oneRule,
		"application/json, application/yaml": `{"rules"`, "*/*": `{"rules"`} {
		ctx := call(s, "GET /v1/rules", "", "Accept: "+accept)
		status(t, ctx, 200, want)
	}
	status(t, put(s, `"1"`, `{"rules":[]}`), 200, `{"version":2,`)
	status(t, put(s, `"1"`, `{"rules":[]}`), 200, `{"version":2,`) // it is there already
	status(t, put(s, `*`, oneRule), 200, `{"version":3,`)
	status(t, call(s, "GET /v1/rules?version=2", ""), 200, `{"rules":[]}`)
	status(t, call(s, "GET /v1/rules?version=9", ""), 404, "no such version")
	for _, query := range []string{"limits=true", "version=1&limits=true"} {
		limits := call(s, "GET /v1/rules?"+query, "")
		status(t, limits, 200,
			`"limits":[{"rule":"a","window":"1m","max":1,"at":"rules:2:22"}]}`)
		want := `"3"`
		if query != "limits=true" {
			want = `"1"`
		}
		if etag(limits) != want {
			t.Errorf("%s: ETag %s, want %s", query, etag(limits), want)
		}
	}
	history := call(s, "GET /v1/rules?history=true", "")
	status(t, history, 200, `{"versions":[{"version":3,"who":"--admin-token",`)
	if n := strings.Count(string(history.Response.Body()), `"who"`); n != 3 {
		t.Errorf("%d versions: %s", n, history.Response.Body())
	}
}

// TestRefusedRules puts documents that are refused: nothing changes.
func TestRefusedRules(t *testing.T) {
	s := newServer(t, newFake())
	status(t, put(s, `"0"`, oneRule), 200, `"version":1`)
	for _, c := range []struct {
		match, document string
		status          int
		want            string
	}{
		{`"1"`, "rules:\n- {name: a, limits: [1/1m, 2]}\n- {}", 422, `rules:2:28: limit: \"2\" is`},
		{`"1"`, "rules:\n- {name: a, limits: [1/1m, 2]}\n- {}", 422, `\nrules:3:3: a rule without`},
		{`"1"`, "rules: [", 422, "rules:2:1: "},
		{`"1"`, "", 422, "rules: there is nothing in it; write rules: [] to have no rules"},
		{`"1"`, "rules: [{name: a, limits: [1/25h]}]", 422, "rules:1:28: too long"},
		{`"1"`, "# " + strings.Repeat("x", 256<<10), 422, "longer than 262144 bytes"},
		{``, "rules: []", 428, "If-Match: missing"},
		{`1`, "rules: []", 422, "If-Match: want the version"},
		{`"x"`, "rules: []", 422, "If-Match: want the version"},
		{`"0"`, "rules: []", 412, "not the newest version; version 1 is in force"},
		{`"2"`, "rules: []", 412, "not the newest version"},
	} {
		status(t, put(s, c.match, c.document), c.status, c.want)
	}
	status(t, call(s, "PUT /v1/rules?x=1", oneRule), 422, "x: unknown parameter")
	text := call(s, "PUT /v1/rules", oneRule, "Content-Type: text/plain")
	status(t, text, 415, "or application/yaml, got text/plain")
	for query, want := range map[string]string{"version=0": "version: want",
		"version=x": "version: want", "history=1": "history: want true",
		"version=1&history=true":   "not both",
		"limits=1":                 "limits: want true",
		"limits=true&history=true": "want one of limits, history and",
		"at=1":                     "rules has version, limits, history and warnings"} {
		status(t, call(s, "GET /v1/rules?"+query, ""), 422, want)
	}
	for request, code := range map[string]int{"POST /v1/rules": 405, "DELETE /v1/rules": 405,
		"PUT /v1/count": 405} {
		status(t, call(s, request, "{}"), code, "want GET")
	}
	now := call(s, "GET /v1/rules", "")
	status(t, now, 200, `"name":"a"`)
	if etag(now) != `"1"` {
		t.Errorf("now ETag %s", etag(now))
	}
}

// TestRulesThatAreNotKnownYet calls a node that has not been able to read any rules.
func TestRulesThatAreNotKnownYet(t *testing.T) {
	book := new(rules.Book)
	unopened := rulebook.New(rulebook.Options{Store: new(rulebook.Memory), Book: book})
	s := serverOf(t, httpapi.Options{Service: newFake(), Rules: book, RuleBook: unopened})
	for _, request := range []string{"GET /v1/rules", "GET /v1/forward-auth?rule=a",
		`POST /v1/acquire {"key":"k","rules":["a"]}`, `POST /v1/batch {"ops":[{"op":"acquire",` +
			`"key":"k","rules":["a"]}]}`} {
		method, rest, _ := strings.Cut(request, " ")
		path, body, _ := strings.Cut(rest, " ")
		got := call(s, fmt.Sprint(method, " ", path), body)
		status(t, got, 503, "has not been able to read the rules")
	}
	status(t, call(s, "POST /v1/acquire", `{"key":"k","limits":[{"window":"1m","max":1}]}`), 200, "")
}

// TestRulesAreChangedAtAdmin shows the rules at both addresses, and changes them at the address of
// --admin alone.
func TestRulesAreChangedAtAdmin(t *testing.T) {
	s, listen := open(t, httpapi.Options{Service: newFake(), RuleBook: newRuleBook(t),
		Admin: "127.0.0.1:0", AdminToken: adminToken})
	for _, c := range []struct {
		address, request string
		code             int
	}{
		{listen, "GET", 200}, {listen, "PUT", 405},
		{s.AdminAddr().String(), "GET", 200}, {s.AdminAddr().String(), "PUT", 200},
	} {
		request := fmt.Sprintf("%s /v1/rules HTTP/1.1\r\nHost: localhost\r\nIf-Match: *\r\n"+
			"Authorization: Bearer %s\r\nContent-Type: application/yaml\r\n"+
			"Content-Length: 9\r\n\r\nrules: []", c.request, adminToken)
		if code, body := send(t, c.address, request); code != c.code {
			t.Errorf("%s at %s: %d %s, want %d", c.request, c.address, code, body, c.code)
		}
	}
}

// TestOthersRulesLookUnknown names rules of other namespaces in every call that takes the name of a
// rule: the answer is the same as to a name that no rule has.
func TestOthersRulesLookUnknown(t *testing.T) {
	store, texts := tokens(t, "other count,read,admin sms")
	f := newFake()
	f.refusals = refusallog.New("n1", func() int64 { return explainedAt })
	s := serverOf(t, httpapi.Options{Service: f, Verdicts: f.counters(), Tokens: store,
		Rules: testRules{}})
	for _, tt := range []struct{ request, body string }{
		{"GET /v1/explain?key=a&rule=%s", ""},
		{"GET /v1/explain?key=a&rule=%s&ns=sms", ""},
		{"GET /v1/bans?rule=%s", ""},
		{"GET /v1/bans?rule=%s&ns=sms", ""},
		{"GET /v1/bans?rule=%s&key=a", ""},
		{"GET /v1/forward-auth?rule=%s", ""},
		{"POST /v1/add", `{"key":"a","rules":["%s"]}`},
		{"POST /v1/acquire", `{"key":"a","rules":["%s"]}`},
		{"POST /v1/acquire", `{"key":"a","rules":["sms","%s"]}`},
		{"POST /v1/acquire", `{"key":"a","ns":"sms","rules":["%s"]}`},
		{"POST /v1/acquire", `{"checks":[{"key":"a","rules":["sms"]},{"key":"b","rules":["%s"]}]}`},
		{"POST /v1/batch", `{"ops":[{"op":"acquire","key":"a","rules":["%s"]}]}`},
		{"POST /v1/batch", `{"ops":[{"op":"distinct","key":"a","values":["v"],"rules":["%s"]}]}`},
		{"POST /v1/distinct", `{"key":"a","values":["v"],"rules":["%s"]}`},
		{"POST /v1/unban", `{"key":"a","rule":"%s"}`},
	} {
		answer := func(name string) string {
			request, body := tt.request, tt.body
			if strings.Contains(request, "%s") {
				request = fmt.Sprintf(request, name)
			} else {
				body = fmt.Sprintf(body, name)
			}
			ctx := as(s, texts["other"], request, body)
			return fmt.Sprint(ctx.Response.StatusCode(), " ",
				strings.ReplaceAll(string(ctx.Response.Body()), name, "NAME"))
		}
		want := answer("unknown-rule")
		if !strings.Contains(want, "NAME") {
			t.Errorf("%s %s: %s", tt.request, tt.body, want)
		}
		for _, name := range []string{"login", "tight", "off", "strict", "devices", "daily",
			"cards", "monthly"} {
			if got := answer(name); got != want {
				t.Errorf("%s %s with %s: %s, want %s", tt.request, tt.body, name, got, want)
			}
		}
	}
}

package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/backtest"
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

// backtester repeats its arguments in the only rule of its report.
type backtester struct{ err error }

func (b *backtester) Backtest(_ context.Context, rules []*twotier.Rule,
	top int) (*backtest.Report, error) {
	if b.err != nil {
		return nil, b.err
	}
	asked := fmt.Sprint(top)
	for _, r := range rules {
		asked += fmt.Sprintf(" %s %s %v", r.Name, r.Space(), r.For([]byte("vip"))[0])
	}
	return &backtest.Report{LookedAt: 1, Namespaces: []backtest.Namespace{},
		Rules: []backtest.RuleReport{{Rule: asked, Keys: []backtest.KeyReport{}}}}, nil
}

// Suggest repeats its arguments in the only rule of its result.
func (b *backtester) Suggest(_ context.Context, rules []*twotier.Rule,
	percentile float64) (*backtest.Suggestions, error) {
	if b.err != nil {
		return nil, b.err
	}
	asked := fmt.Sprint(rules[0].Name, rules[0].Limits)
	return &backtest.Suggestions{Percentile: percentile, Rules: []backtest.Suggestion{{
		Rule: asked, Limits: []backtest.SuggestedLimit{}}}}, nil
}

// TestBacktestTakesDocumentsAndNames passes on the rules with all their fields.
func TestBacktestTakesDocumentsAndNames(t *testing.T) {
	s := newServer(t, newFake())
	for _, test := range []struct{ body, want string }{
		{`{"rules":["sms","login"],"top":3}`,
			`"top":3,"rules_version":7,"looked_at":1,"unread":0,"namespaces":[],` +
				`"rules":[{"rule":"3 sms sms {60000 2 1m \u003cnil\u003e} login default {60000 3 1m \u003cnil\u003e}"`},
		{`{"rules":{"rules":[{"name":"b","namespace":"x","limits":["1/1h"]},{"name":"a","limits":
			["2/1m"],"overrides":[{"prefix":"v","limits":["9/1s"]}]}]}}`,
			`"top":1000,"looked_at":1,"unread":0,"namespaces":[],` +
				`"rules":[{"rule":"1000 a default {1000 9 1s \u003cnil\u003e} b x {3600000 1 1h \u003cnil\u003e}"`},
		{`{"top":1,"rules":"# \"proposed\"\nrules:\n- {name: a, limits: [7/1d]}\n"}`,
			`"rules":[{"rule":"1 a default {86400000 7 1d \u003cnil\u003e}"`},
	} {
		got := call(s, "POST /v1/backtest", test.body)
		status(t, got, http.StatusOK, test.want)
	}
	if _, number, _ := showRules(t, s); number != `"0"` {
		t.Errorf("version %s is in force after backtests", number)
	}
}

// TestSuggestionsTakeDocumentsAndNames passes on the rules and the percentile.
func TestSuggestionsTakeDocumentsAndNames(t *testing.T) {
	s := newServer(t, newFake())
	for body, want := range map[string]string{
		`{"rules":["sms"],"suggest":{}}`: `"rules_version":7,"percentile":99.9,"unread":0,` +
			`"rules":[{"rule":"sms[{60000 2 1m \u003cnil\u003e}]"`,
		`{"suggest": {"percentile": 95.25},"rules":"rules: [{name: a, limits: 1/1h}]"}`: `"percentile":95.25,"unread":0,"rules":[{"rule":"a[{3600000 1 1h \u003cnil\u003e}]"`,
		`{"rules":["sms"],"suggest":{"percentile":100}}`:                                `"percentile":100,`,
	} {
		status(t, call(s, "POST /v1/backtest", body), http.StatusOK, want)
	}
	for suggest, want := range map[string]string{
		`7`:                               "suggest: want an object with percentile",
		`{"percentile":"99"}`:             "suggest.percentile: want a number above 0",
		`{"percentile":0}`:                "suggest.percentile: want a number above 0",
		`{"percentile":100.1}`:            "suggest.percentile: want a number above 0",
		`{"percentile":9,"percentile":9}`: "suggest.percentile: given twice",
		`{"p":9}`:                         "suggest.p: unknown field; suggest has percentile",
		`{},"top":5`:                      "top: has no effect on a suggestion",
		`{},"suggest":{}`:                 "suggest: given twice",
	} {
		body := `{"rules":["sms"],"suggest":` + suggest + "}"
		status(t, call(s, "POST /v1/backtest", body), 422, want)
	}
	status(t, call(s, "POST /v1/backtest", `{"suggest":{}}`), 422, "rules: want a document")
}

// showRules returns the rules in force and their version.
func showRules(t *testing.T, s *httpapi.Server) (text, tag string, code int) {
	t.Helper()
	got := call(s, "GET /v1/rules", "")
	return string(got.Response.Body()), etag(got), got.Response.StatusCode()
}

// TestBacktestsThatAreRefused: a refusal covers the whole request and names the place of each
// mistake, in the text, or in the body if the document is a part of it.
func TestBacktestsThatAreRefused(t *testing.T) {
	s := newServer(t, newFake())
	for _, test := range []struct {
		body string
		code int
		want string
	}{
		{`{"rules":"rules:\n- {name: a, limits: [1/1m]}\n- {name: b, limits: [1]}\n"}`, 422,
			`rules:3:22: limit: \"1\" is not MAX/WINDOW`},
		{"{\"top\":5,\n \"rules\":{\"rules\":[{\"name\":\"é\",\"limits\":[\"1/1m\"]},\n" +
			`{"name":"a","limits":["1/1m"],"state":"of"}]}}`, 422, `rules:3:39: state:`},
		{`{"rules":"rules:\n- {name: a, limits: [1/48h]}\n"}`, 422, `rules:2:22: too long`},
		{`{"rules":{"rules":[{"name":"a","limits":["1/1m"],"overrides":[{"key":"\ud83d\ude00",` +
			`"limits":["1"]}]}]}}`, 422, `rules:1:95: limit: \"1\" is not MAX/WINDOW`},
		{`{"rules":"rules: []"}`, 422, "rules: want a document with at least one rule"},
		{`{"rules":[]}`, 422, "rules: want a document with at least one rule"},
		{`{}`, 422, "rules: want a document with at least one rule"},
		{`{"rules":["login","nobody"]}`, 422, `rules[1]: there is no rule \"nobody\"`},
		{`{"rules":[` + strings.Repeat(`"login",`, 32) + `"login"]}`, 422,
			"rules[32]: want at most 32 rules"},
		{`{"rules":["login"],"top":0}`, 422, "top: want 1 to 1000"},
		{`{"rules":["login"],"top":1001}`, 422, "top: want 1 to 1000"},
		{`{"rules":["login"],"rules":["login"]}`, 422, "rules: given twice"},
		{`{"rules":["login"],"bottom":1}`, 422, "bottom: unknown field"},
		{`{"rules":7}`, 422, "rules: want a document"},
		{`{"rules":["login"]`, 400, "malformed JSON at byte 18"},
		{`{"rules":{"rules":[}}`, 400, "malformed JSON at byte 19"},
		{`{"rules":"` + strings.Repeat("#", twotier.MaxRuleText) + `#"}`, 422, "longer than"},
	} {
		status(t, call(s, "POST /v1/backtest", test.body), test.code, test.want)
	}
	status(t, call(s, "POST /v1/backtest?top=3", `{"rules":["login"]}`), 422, "top")
	text, tag, _ := showRules(t, s)
	if text != "{}" || tag != `"0"` {
		t.Errorf("in force now: %s %s", tag, text)
	}
}

// TestBacktestsThatFail covers the errors of the Backtester.
func TestBacktestsThatFail(t *testing.T) {
	for code, err := range map[int]error{429: twotier.ErrOverload, 503: twotier.ErrUnavailable,
		422: &twotier.InvalidError{Check: -1, Limit: -1, Field: "rules", Detail: "too many"}} {
		s, failed := httpapi.New(httpapi.Options{Service: newFake(), Rules: testRules{},
			RuleBook: newRuleBook(t), Backtester: &backtester{err}})
		if failed != nil {
			t.Fatal(failed)
		}
		status(t, call(s, "POST /v1/backtest", `{"rules":["login"]}`), code, "")
		status(t, call(s, "POST /v1/backtest", `{"rules":["login"],"suggest":{}}`), code, "")
	}
}

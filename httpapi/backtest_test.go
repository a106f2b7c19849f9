package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/backtest"
)

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

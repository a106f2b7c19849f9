package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/refusallog"
)

// TestOthersRulesLookUnknown names rules of other namespaces in every call that takes the name of a
// rule: the answer is the same as to a name that no rule has.
func TestOthersRulesLookUnknown(t *testing.T) {
	store, texts := tokens(t, "other count,read,admin sms")
	f := newFake()
	f.refusals = refusallog.New("n1", func() int64 { return explainedAt })
	s := guarded(t, httpapi.Options{Service: f, Verdicts: f.counters(), Tokens: store,
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

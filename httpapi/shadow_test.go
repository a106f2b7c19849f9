package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/verdicts"
)

// TestShadow asks a server whose namespaces are in shadow, except one: limits of requests are
// judged and reported like the limits of a rule in shadow, and refuse nothing. Before each request
// its key k has 10 events.
func TestShadow(t *testing.T) {
	const acquire, batch = "POST /v1/acquire", "POST /v1/batch"
	const minute = `"limits":[{"window":"60s","max":9}]`
	const over = `{"window":"60s","max":9,"count":11,"remaining":0,"refused":true,"shadow":true}`
	for _, tt := range []struct{ request, body, want, counted string }{
		{acquire, `{"key":"k",` + minute + `}`,
			`{"allowed":true,"limits":[` + over + `],"retry_after_ms":0,"source":"memory"}`,
			"default/ [0 0 1 0]"},
		{acquire + "?deny=429", `{"key":"k","n":0,` + minute + `}`,
			`{"allowed":true,"limits":[{"window":"60s","max":9,"count":10,"remaining":0,` +
				`"refused":true,"shadow":true}],"retry_after_ms":0,"source":"memory"}`, ""},
		{acquire, `{"key":"l",` + minute + `}`,
			`{"allowed":true,"limits":[{"window":"60s","max":9,"count":1,"remaining":8,` +
				`"shadow":true}],"retry_after_ms":0,"source":"memory"}`, "default/ [1 0 0 0]"},
		{acquire, `{"key":"l","rules":["login"],` + minute + `}`,
			`{"allowed":true,"limits":[{"window":"60s","max":9,"count":1,"remaining":8,` +
				`"shadow":true},{"window":"1m","max":3,"count":1,"remaining":2,"rule":"login"},` +
				`{"window":"1h","max":5,"count":1,"remaining":4,"rule":"login"}],` +
				`"retry_after_ms":0,"source":"memory","rules_version":7}`,
			"default/ [1 0 0 0]\ndefault/login [1 0 0 0]"},
		{acquire, `{"checks":[{"key":"k",` + minute + `},{"ns":"strict","key":"k",` + minute +
			`}]}`,
			`{"allowed":false,"checks":[{"key":"k","allowed":true,"limits":[{"window":"60s",` +
				`"max":9,"count":10,"remaining":0,"refused":true,"shadow":true}],` +
				`"retry_after_ms":0},{"key":"k","allowed":false,"limits":[{"window":"60s",` +
				`"max":9,"count":10,"remaining":0,"refused":true}],"retry_after_ms":1500}],` +
				`"refused_by":["checks[1].limits[0]"],"retry_after_ms":1500,"source":"memory"}`,
			"default/ [0 0 1 0]\nstrict/ [0 1 0 0]"},
		{batch, `{"ops":[{"op":"acquire","key":"k",` + minute + `},{"op":"add","key":"k",` +
			minute + `}]}`, `{"results":[{"allowed":true,"limits":[` + over + `],` +
			`"retry_after_ms":0,"source":"memory"},{"key":"k","counts":[{"window":"60s",` +
			`"count":12,"min":12,"max":12}],"over":true,"source":"memory"}]}`,
			"default/ [0 0 1 0]"},
		{batch, `{"quiet":true,"ops":[{"op":"acquire","key":"k",` + minute + `}]}`,
			`{"ops":1,"errors":[],"added":0,"allowed":1,"refused":0}`, "default/ [0 0 1 0]"},
		{"POST /v1/distinct", `{"key":"k","values":["a","b"],"limits":[{"window":"1h","max":1}]}`,
			`{"key":"k","counts":[{"window":"1h","max":1,"count":2,"at_least":2,"at_most":2,"error":0,` +
				`"refused":true,"shadow":true}],"over":false,"source":"memory","degraded":false}`,
			"default/ [0 0 1 0]"},
	} {
		f, c := newFake(), verdicts.New()
		f.set([]byte("k"), 10)
		s, err := httpapi.New(httpapi.Options{Service: f, Rules: testRules{},
			Verdicts: c, Shadow: twotier.Shadow{"default": true, "strict": false}})
		if err != nil {
			t.Fatal(err)
		}
		ctx := call(s, tt.request, tt.body)
		if got := string(ctx.Response.Body()); ctx.Response.StatusCode() != 200 || got != tt.want {
			t.Errorf("%s %s: %d\n got %s\nwant %s", tt.request, tt.body, ctx.Response.StatusCode(),
				got, tt.want)
		}
		if field := ctx.Response.Header.Peek("RateLimit"); len(field) > 0 {
			t.Errorf("%s: RateLimit is %s", tt.body, field)
		}
		var counted []string
		for _, r := range c.Rows() {
			counted = append(counted, fmt.Sprintf("%s/%s %v", r.Namespace, r.Rule, r.Totals))
		}
		if got := strings.Join(counted, "\n"); got != tt.counted {
			t.Errorf("%s counted\n%s\nwant\n%s", tt.body, got, tt.counted)
		}
	}
}

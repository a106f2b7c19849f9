package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/verdicts"
)

// TestCalendarWindowsThatAreRefused counts nothing, and names the field.
func TestCalendarWindowsThatAreRefused(t *testing.T) {
	for limit, want := range map[string]string{
		`"window":"month","zone":"Mars/Olympus"`:   `limits[0].zone: unknown time zone \"Mars/Olympus\", want a name such as Europe/Lisbon`,
		`"window":"day@Mars/Olympus"`:              `limits[0].window: zone: unknown time zone`,
		`"window":"month","zone":"Local"`:          `limits[0].zone: unknown time zone`,
		`"window":"month","zone":7`:                `limits[0].zone`,
		`"window":"month","anchor":32`:             `limits[0].anchor: 32, want 1 to 31 for a month`,
		`"window":"month","anchor":0`:              `limits[0].anchor: 0, want 1 to 31 for a month`,
		`"window":"week","anchor":8`:               `limits[0].anchor: 8, want 1 to 7 for a week`,
		`"window":"day","anchor":-1`:               `limits[0].anchor: -1, want 0 to 23 for a day`,
		`"window":"day","anchor":1e99`:             `limits[0].anchor`,
		`"window":"hour","anchor":0`:               `limits[0].anchor: an hour has none`,
		`"window":"1m","zone":"Europe/Lisbon"`:     `limits[0].zone: is for a calendar window`,
		`"window":"1m","anchor":1`:                 `limits[0].anchor: is for a calendar window`,
		`"window":"day@UTC","zone":"Asia/Tokyo"`:   `limits[0].zone: want it either here or in the window`,
		`"window":"fortnight"`:                     `or a calendar window such as \"day\" or \"month@Europe/Lisbon\", got \"fortnight\"`,
		`"window":"1mo"`:                           `a month has no fixed length; want days such as \"30d\", or in a limit the calendar window \"month\", got \"1mo\"`,
		`"window":"day","zone":"UTC","zone":"UTC"`: `limits[0].zone: given twice`,
		`"zone":"UTC"`:                             `limits[0].window: missing`,
		`"window":"day","timezone":"UTC"`:          `unknown field; a limit has window and max, and a calendar window also zone and anchor`,
	} {
		f := newFake()
		status(t, call(newServer(t, f), "POST /v1/acquire",
			`{"key":"k","limits":[{"max":5,`+limit+`}]}`), 422, want)
		if len(f.counts) > 0 {
			t.Errorf("%s: counted", limit)
		}
	}
}

// TestCalendarRateLimitFields shows the length of the period and the time until its end, whether it
// refuses or not.
func TestCalendarRateLimitFields(t *testing.T) {
	f := newFake()
	s := newServer(t, f)
	for i, want := range []string{`"limits[0]";r=1;t=2512000, "limits[1]";r=8`,
		`"limits[0]";r=0;t=2512000, "limits[1]";r=7`, `"limits[0]";r=0;t=2512000, "limits[1]";r=7`} {
		ctx := call(s, "POST /v1/acquire?deny=429", `{"key":"k","ts":1700000000000,"limits":[`+
			`{"window":"month","anchor":14,"max":2},{"window":"1m","max":9}]}`)
		policy, state := ctx.Response.Header.Peek("RateLimit-Policy"),
			ctx.Response.Header.Peek("RateLimit")
		if string(policy) != `"limits[0]";q=2;w=2592000, "limits[1]";q=9;w=60` ||
			string(state) != want {
			t.Errorf("acquire %d: %s and %s, want %s", i, policy, state, want)
		}
	}
	// Without a time it is about the period of the moment.
	ctx := call(s, "POST /v1/acquire", `{"key":"now","limits":[{"window":"hour","max":2}]}`)
	var answer struct{ Limits []struct{ Start, End int64 } }
	decode(t, ctx.Response.Body(), &answer)
	now := time.Now().UnixMilli()
	if l := answer.Limits[0]; l.End-l.Start != 3_600_000 || l.Start > now || l.End < now-60_000 {
		t.Errorf("%s at %d", ctx.Response.Body(), now)
	}
}

// monthly returns the limit of the rule monthly.
func monthly() twotier.RuleLimit {
	p, err := twotier.ParsePeriod("month@Asia/Tokyo")
	if err != nil {
		panic(err)
	}
	return twotier.RuleLimit{Max: 3, Text: p.String(), Period: p}
}

// TestNear lists the limits in "near": limits of rules that allow, with a count at or above the
// rule's warning level. The levels of rule warned are 3 of 3 in a minute and 4 of 5 in an hour, of
// rule warned-shadow 1 of 2, and of the values 2 of 2.
func TestNear(t *testing.T) {
	const batch, acquire = "POST /v1/batch", "POST /v1/acquire"
	for _, tt := range []struct {
		count      int64 // of key k, before
		call, body string
		want       string // "near", or "" if the answer has none
	}{
		{0, acquire, `{"key":"k","n":2,"rules":["warned"]}`, ""},
		{0, acquire, `{"key":"k","n":3,"rules":["warned"]}`, `["warned/1m"]`},
		{0, acquire, `{"key":"k","n":3,"rules":["warned"],"dry_run":true}`, `["warned/1m"]`},
		{3, acquire, `{"key":"k","n":0,"rules":["warned"]}`, ""}, // of 5, and the other refuses
		{4, acquire, `{"key":"k","rules":["warned"]}`, `["warned/1h"]`},
		{5, acquire, `{"key":"k","rules":["warned"]}`, ""},
		{0, acquire, `{"key":"k","n":4,"rules":["warned"],"charge":true}`, `["warned/1h"]`},
		{0, acquire, `{"key":"k","rules":["warned-shadow"]}`, `["warned-shadow"]`},
		{2, acquire, `{"key":"k","rules":["warned-shadow"]}`, ""},
		{0, acquire, `{"key":"k","n":3,"limits":[{"window":"1m","max":3}],"rules":["login"]}`, ""},
		{2, acquire, `{"checks":[{"key":"l","rules":["login"]},{"key":"k","rules":["warned"]}]}`,
			`["checks[1].warned/1m"]`},
		{2, batch, `{"ops":[{"op":"acquire","key":"k","rules":["warned"]}]}`, `["warned/1m"]`},
		{3, "POST /v1/add", `{"key":"k","rules":["warned"]}`, ""},
		{0, "POST /v1/distinct", `{"key":"k","values":["a"],"rules":["warned-values"]}`, ""},
		{0, "POST /v1/distinct", `{"key":"k","values":["a","b"],"rules":["warned-values"]}`,
			`["warned-values/1h"]`},
		{0, "POST /v1/distinct", `{"key":"k","values":["a","b","c"],"rules":["warned-values"]}`,
			""},
	} {
		f := newFake()
		f.set([]byte("k"), tt.count)
		s, _ := judging(t, f)
		ctx := call(s, tt.call, tt.body)
		answer := string(ctx.Response.Body())
		_, near, found := strings.Cut(answer, `,"near":`)
		near, _, _ = strings.Cut(near, `],`)
		if found {
			near += "]"
		}
		if ctx.Response.StatusCode() != 200 || near != tt.want {
			t.Errorf("%s with %d before: %d, near %s, want %s\n%s", tt.body, tt.count,
				ctx.Response.StatusCode(), near, tt.want, answer)
		}
	}
}

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
		s := serverOf(t, httpapi.Options{Service: f, Rules: testRules{},
			Verdicts: c, Shadow: twotier.Shadow{"default": true, "strict": false}})
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

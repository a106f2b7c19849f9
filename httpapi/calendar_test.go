package httpapi_test

import (
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier"
)

// TestCalendarWindows asks at 22:13:20 UTC on 14 November 2023.
func TestCalendarWindows(t *testing.T) {
	for _, test := range []struct{ name, request, body, want string }{
		{"object", "POST /v1/acquire",
			`{"key":"k","ts":1700000000000,"limits":[{"zone":"Europe/Lisbon","window":"month","anchor":14,"max":15}]}`,
			`{"allowed":true,"limits":[{"window":"month.14@Europe/Lisbon","max":15,"count":11,"remaining":4,"start":1699920000000,"end":1702512000000}],"retry_after_ms":0,"source":"memory"}`},
		{"default zone and anchor", "POST /v1/acquire",
			`{"key":"k","ts":1700000000000,"limits":[{"window":"day","max":10},{"window":"week","zone":"UTC","max":20}]}`,
			`{"allowed":false,"limits":[{"window":"day","max":10,"count":10,"remaining":0,"start":1699920000000,"end":1700006400000,"refused":true},{"window":"week","max":20,"count":10,"remaining":10,"start":1699833600000,"end":1700438400000}],"refused_by":["limits[0]"],"retry_after_ms":1500,"source":"memory"}`},
		{"as spelled", "POST /v1/add",
			`{"key":"k","ts":1700000000000,"limits":[{"window":"day.00@Asia/Shanghai","max":99}]}`,
			`{"key":"k","counts":[{"window":"day.00@Asia/Shanghai","count":11,"min":11,"max":11,"start":1699977600000,"end":1700064000000}],"over":false,"source":"memory"}`},
		{"count", "GET /v1/count?key=k&window=1m,day@Asia/Shanghai&at=1700000000000", "",
			`{"key":"k","counts":[{"window":"1m","count":10,"min":10,"max":10,"bucket_ms":1000},{"window":"day@Asia/Shanghai","count":10,"min":10,"max":10,"bucket_ms":1000,"start":1699977600000,"end":1700064000000}],"source":"memory","age_ms":7,"degraded":false}`},
		{"batch", "POST /v1/batch",
			`{"ops":[{"op":"count","key":"k","window":["hour@Asia/Kathmandu"],"at":1700000000000},{"op":"acquire","key":"k","dry_run":true,"ts":1700000000000,"limits":[{"window":"hour","zone":"Asia/Kathmandu","max":11}]}]}`,
			`{"results":[{"key":"k","counts":[{"window":"hour@Asia/Kathmandu","count":10,"min":10,"max":10,"bucket_ms":1000,"start":1699996500000,"end":1700000100000}],"source":"memory","age_ms":7,"degraded":false},` +
				`{"allowed":true,"limits":[{"window":"hour@Asia/Kathmandu","max":11,"count":11,"remaining":0,"start":1699996500000,"end":1700000100000}],"retry_after_ms":0,"source":"memory"}]}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFake()
			f.set([]byte("k"), 10)
			ctx := call(newServer(t, f), test.request, test.body)
			if got := string(ctx.Response.Body()); ctx.Response.StatusCode() != 200 ||
				got != test.want {
				t.Errorf("%d\n got %s\nwant %s", ctx.Response.StatusCode(), got, test.want)
			}
		})
	}
}

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
		ctx := call(newServer(t, f), "POST /v1/acquire",
			`{"key":"k","limits":[{"max":5,`+limit+`}]}`)
		if got := string(ctx.Response.Body()); ctx.Response.StatusCode() != 422 ||
			!strings.Contains(got, want) {
			t.Errorf("%s: %d %s, want %s", limit, ctx.Response.StatusCode(), got, want)
		}
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

// TestDistinctValuesHaveNoCalendarWindows refuses them in limits, in windows and in queries.
func TestDistinctValuesHaveNoCalendarWindows(t *testing.T) {
	s := newServer(t, newFake())
	for _, body := range []string{
		`{"key":"k","values":["v"],"limits":[{"window":"month","max":5}]}`,
		`{"key":"k","values":["v"],"limits":[{"window":"day","zone":"Asia/Shanghai","max":5}]}`,
		`{"key":"k","values":["v"],"window":["1h","day"]}`,
	} {
		ctx := call(s, "POST /v1/distinct", body)
		if got := string(ctx.Response.Body()); ctx.Response.StatusCode() != 422 ||
			!strings.Contains(got, "distinct values have no calendar windows") {
			t.Errorf("%s: %d %s", body, ctx.Response.StatusCode(), got)
		}
	}
	ctx := call(s, "GET /v1/distinct?key=k&window=week", "")
	if got := string(ctx.Response.Body()); ctx.Response.StatusCode() != 422 ||
		!strings.Contains(got, "window: distinct values have no calendar windows") {
		t.Errorf("a query: %d %s", ctx.Response.StatusCode(), got)
	}
}

// TestCalendarRules resolves a rule's period like a request's.
func TestCalendarRules(t *testing.T) {
	f := newFake()
	ctx := call(newServer(t, f), "POST /v1/acquire",
		`{"key":"k","ts":1700000000000,"rules":["monthly"]}`)
	const want = `{"allowed":true,"limits":[{"window":"month@Asia/Tokyo","max":3,"count":1,"remaining":2,"start":1698764400000,"end":1701356400000,"rule":"monthly"}],"retry_after_ms":0,"source":"memory","rules_version":7}`
	if got := string(ctx.Response.Body()); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	if l := f.last.Checks[0].Limits[0]; l.Period == nil || l.Window != 0 {
		t.Errorf("asked for %+v", l)
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

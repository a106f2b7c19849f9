package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/testing/extended"
	"twotier.dev/twotier/syncer"
)

// noon is the time at which the fake counts distinct values.
const noon = 1_767_225_600_000

// doValues executes an operation with values in memory.
func (f *fake) doValues(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	if f.values == nil {
		counter, err := syncer.New(syncer.Options{Now: func() int64 { return noon },
			Placement: twotier.Placement{Partitions: 1}})
		if err == nil {
			err = counter.Open(ctx)
		}
		if err != nil {
			return err
		}
		f.values = &extended.Service{Counter: counter}
	}
	return f.values.Do(ctx, op, res)
}

// TestDistinct adds and counts, and compares whole answers.
func TestDistinct(t *testing.T) {
	s := newServer(t, newFake())
	const tail = `"source":"memory","degraded":false}`
	for _, test := range []struct {
		request, body string
		code          int
		want          string
	}{
		{"POST /v1/distinct", `{"key":"k","values":["a","b","a"]}`, 200,
			`{"key":"k","counts":[],"over":false,` + tail},
		{"POST /v1/distinct", `{"values":["\u00e9"],"window":"1m,1h","limits":[
			{"window":"1d","max":3}],"key":"k"}`, 200, `{"key":"k","counts":[` +
			`{"window":"1d","max":3,"count":3,"at_least":3,"at_most":3,"error":0},` +
			`{"window":"1m","count":3,"at_least":3,"at_most":3,"error":0},` +
			`{"window":"1h","count":3,"at_least":3,"at_most":3,"error":0}],"over":false,` + tail},
		{"POST /v1/distinct", `{"key":"k","values":["é"],"limits":[{"window":"1h","max":3}]}`, 200,
			`"count":3,"at_least":3,"at_most":3,"error":0}],"over":false,`},
		{"POST /v1/distinct", `{"key":"k","values":["a","x"],"limits":[{"window":"1h","max":9},
			{"window":"1m","max":3}]}`, 200,
			`"count":3,"at_least":3,"at_most":3,"error":0,"refused":true}],"over":true,` +
				`"refused_by":["limits[1]"],"retry_after_ms":60000,` + tail},
		{"POST /v1/distinct?deny=429", `{"key":"k","values":["x"],"limits":[
			{"window":"1m","max":3}]}`, 429, `"over":true,"refused_by":["limits[0]"],`},
		{"GET /v1/distinct?key=k&window=24h,1s", "", 200, `{"key":"k","counts":[` +
			`{"window":"24h","count":3,"at_least":3,"at_most":3,"error":0},` +
			`{"window":"1s","count":3,"at_least":3,"at_most":3,"error":0}],` + tail},
		{"GET /v1/distinct?key=none&window=1m&at=" + fmt.Sprint(noon-5000), "", 200, `"count":0`},
	} {
		got := call(s, test.request, test.body)
		status(t, got, test.code, test.want)
	}
}

// TestDistinctByRules judges values by rules: on, in shadow, off, with an override, by default, and
// together with limits. An addition is all or nothing, and each rule that judges counts a verdict.
func TestDistinctByRules(t *testing.T) {
	s, counted := judging(t, newFake())
	const tail = `,"rules_version":7,"source":"memory","degraded":false}`
	const version = `"over":false,"rules_version":7,`
	for _, test := range []struct{ body, want string }{
		{`{"key":"k","values":["a","b"],"window":"7h","rules":["devices-off","devices"]}`,
			`{"key":"k","counts":[` +
				`{"window":"1h","max":2,"count":2,"at_least":2,"at_most":2,"error":0,"rule":"devices"},` +
				`{"window":"24h","max":3,"count":2,"at_least":2,"at_most":2,"error":0,"rule":"devices"},` +
				`{"window":"7h","count":2,"at_least":2,"at_most":2,"error":0}],"over":false` + tail},
		{`{"rules":["devices-tight","devices"],"limits":[{"window":"1h","max":3}],"key":"k",` +
			`"values":["b"]}`, `{"key":"k","counts":[` +
			`{"window":"1h","max":3,"count":2,"at_least":2,"at_most":2,"error":0},` +
			`{"window":"1m","max":1,"count":2,"at_least":2,"at_most":2,"error":0,"refused":true,` +
			`"rule":"devices-tight","shadow":true},` +
			`{"window":"1h","max":2,"count":2,"at_least":2,"at_most":2,"error":0,"rule":"devices"},` +
			`{"window":"24h","max":3,"count":2,"at_least":2,"at_most":2,"error":0,"rule":"devices"}],` +
			`"over":false` + tail},
		// A rule in shadow does not refuse, a limit next to it does, and nothing is added.
		{`{"key":"k","values":["c","d"],"rules":["devices-tight","devices"],"limits":[` +
			`{"window":"2h","max":3}]}`, `"over":true,"refused_by":["limits[0]","devices/1h",` +
			`"devices/24h"],"retry_after_ms":86400000` + tail},
		{`{"key":"k","values":["c"],"rules":["devices","devices-tight"]}`,
			`"over":true,"refused_by":["devices/1h"],"retry_after_ms":3600000` + tail},
		{`{"key":"k","values":["c"],"rules":["devices-tight"]}`, version},
		{`{"key":"vip","values":["a","b","c","d"],"rules":["devices"]}`, `"counts":[{"window":` +
			`"1h","max":9,"count":4,"at_least":4,"at_most":4,"error":0,"rule":"devices"}],` + version},
		{`{"key":"k","values":["e"],"rules":["devices-off"]}`, `"counts":[],` + version},
		{`{"key":"k","values":["f"]}`, `"counts":[],"over":false,"source"`},
		{`{"ns":"risk","key":"k","values":["a"]}`, `"rule":"risk"}],` + version},
		{`{"ns":"risk","key":"k","values":["b"]}`, `"over":true,"refused_by":["risk"],"retry_after_ms":86400000` + tail},
		{`{"ns":"risk","key":"k","values":["b"],"limits":[{"window":"1h","max":2}]}`,
			`"count":2,"at_least":2,"at_most":2,"error":0}],"over":false,"source"`},
		{fmt.Sprintf(`{"ns":"risk","key":"k","values":["c"],"ts":%d}`, noon-5000),
			`"counts":[],"over":false,"source"`},
		{`{"key":"l","values":["a"],"rules":["risk"]}`, version},
		{`{"ns":"risk","key":"l","values":["b"],"rules":["risk"]}`, `"over":true,"refused_by":["risk"]`},
	} {
		status(t, call(s, "POST /v1/distinct", test.body), 200, test.want)
	}
	got := call(s, "POST /v1/distinct?deny=429", `{"ns":"cards","key":"k","values":["a","b"]}`)
	status(t, got, 429, `"refused_by":["cards"],"retry_after_ms":-1,`) // two are never allowed
	if after := got.Response.Header.Peek("Retry-After"); len(after) > 0 {
		t.Errorf("Retry-After: %s", after)
	}
	call(s, "POST /v1/distinct", `{"ns":"cards","key":"l","values":["a"]}`)
	got = call(s, "POST /v1/distinct?deny=429", `{"ns":"cards","key":"l","values":["b"]}`)
	status(t, got, 429, `"retry_after_ms":86400000,`)
	if after := string(got.Response.Header.Peek("Retry-After")); after != "86400" {
		t.Errorf("Retry-After: %q", after)
	}
	want := "http cards/cards [1 2 0 0]\nhttp default/ [1 1 0 0]\n" +
		"http default/devices [3 2 0 0]\nhttp default/devices-tight [0 0 4 0]\n" +
		"http risk/ [1 0 0 0]\nhttp risk/risk [2 2 0 0]"
	if got := counted(); got != want {
		t.Errorf("verdicts\n%s\nwant\n%s", got, want)
	}
	status(t, call(s, "POST /v1/acquire", `{"ns":"risk","key":"k"}`), 200, `"rule":"risk"`)
}

// TestDistinctOfManyValues looks for the error bound of an estimate.
func TestDistinctOfManyValues(t *testing.T) {
	s := newServer(t, newFake())
	for i := range 10 {
		var values []string
		for j := range 1000 {
			values = append(values, fmt.Sprintf("%q", fmt.Sprint(i, ":", j)))
		}
		status(t, call(s, "POST /v1/distinct", `{"key":"k","values":[`+strings.Join(values, ",")+
			`]}`), http.StatusOK, `"over":false`)
	}
	status(t, call(s, "GET /v1/distinct?key=k&window=1m", ""), http.StatusOK, `"error":0.0174}`)
}

// TestDistinctRefusals: a refusal names the wrong field, and adds nothing.
func TestDistinctRefusals(t *testing.T) {
	s := newServer(t, newFake())
	long := strings.Repeat("x", request.MaxValueBytes+1)
	many := strings.Repeat(`"v",`, request.MaxValues) + `"v"`
	for _, test := range []struct {
		request, body string
		code          int
		want          string
	}{
		{"POST /v1/distinct", `{"key":"k"}`, 422, "values: missing"},
		{"POST /v1/distinct", `{"values":["v"]}`, 422, "key: missing"},
		{"POST /v1/distinct", `{"key":"k","values":[]}`, 422, "values: missing"},
		{"POST /v1/distinct", `{"key":"k","values":["v",""]}`, 422,
			"values[1]: want 1 to 1024 bytes"},
		{"POST /v1/distinct", `{"key":"k","values":["` + long + `"]}`, 422,
			"values[0]: want 1 to 1024 bytes"},
		{"POST /v1/distinct", `{"key":"k","values":[` + many + `]}`, 422,
			"values: want at most 1000 values"},
		{"POST /v1/distinct", `{"key":"k","values":[1]}`, 422, "values[0]: want a string"},
		{"POST /v1/distinct", `{"key":"k","values":["v"],"ack":"disk"}`, 422,
			"ack: counts are kept in the memory"},
		{"POST /v1/distinct", `{"key":"k","values":["v"],"n":1}`, 422, "n: unknown field"},
		{"POST /v1/distinct", `{"key":"k","key":"l","values":["v"]}`, 422, "key: given twice"},
		{"POST /v1/distinct", `{"key":"k","values":["v"],"window":"x"}`, 422, "window: want a"},
		{"POST /v1/distinct", `{"key":"k","values":["v"],"limits":[{"window":"2d","max":1}]}`, 422,
			"limits[0].window: 48h is longer than"},
		{"POST /v1/distinct", `{"key":"k","values":["v"],"rules":["devices","x"]}`, 422,
			`rules[1]: there is no rule \"x\"`},
		{"POST /v1/distinct", `{"key":"k","values":["v"],"rules":["devices-off","login"]}`, 422,
			"rules[1]: rule login has no distinct limits: name it in /v1/acquire"},
		{"POST /v1/distinct", `{"key":"k","values":["v"],"rules":["devices","cards"]}`, 422,
			"rules[1]: rule devices counts in namespace default and rule cards in cards"},
		{"POST /v1/distinct", `{"ns":"x","key":"k","values":["v"],"rules":["devices"]}`, 422,
			"ns: rule devices counts in namespace default; leave ns out"},
		{"POST /v1/distinct", `{"key":"k","values":["v"],"rules":[` +
			strings.Repeat(`"devices-off",`, 16) + `"devices"]}`, 422, "want at most 16 rules"},
		{"POST /v1/distinct", fmt.Sprintf(`{"key":"k","values":["v"],"ts":%d,`+
			`"rules":["devices"]}`, noon-5000), 422, "ts: limits and rules are about the present"},
		{"POST /v1/distinct", fmt.Sprintf(`{"key":"k","values":["v"],"ts":%d,`+
			`"rules":["devices-off"]}`, noon-5000), 422, "ts: limits and rules are about the"},
		{"POST /v1/acquire", `{"key":"k","rules":["login","devices"]}`, 422,
			"rules[1]: rule devices has only distinct limits, which judge values: name it in"},
		{"POST /v1/acquire", `{"checks":[{"key":"k","rules":["devices"]}]}`, 422,
			"checks[0].rules[0]: rule devices has only distinct limits"},
		{"POST /v1/add", `{"key":"k","rules":["devices"]}`, 422, "rules[0]: rule devices has only"},
		{"GET /v1/forward-auth?rule=devices&key=ip", "", 422, "rule: rule devices has only"},
		{"POST /v1/acquire", `{"ns":"cards","key":"k"}`, 422, "limits: missing"},
		{"POST /v1/batch", `{"ops":[{"values":["v"],"op":"add","key":"k"}]}`, 200,
			"values: unknown field"},
		{"POST /v1/distinct", `{"key":"k","values":["v"],"ts":1}`, 422, "ts: 1 is"},
		{"POST /v1/distinct", `{"key":"k","values":["v"]`, 400, "malformed JSON"},
		{"POST /v1/distinct", `{"window":"1m","key":"k","values":["v"]`, 400, "malformed JSON"},
		{"POST /v1/distinct", `{"key":"k","values":["v"],"limits":[{"window":"month","max":5}]}`, 422,
			"distinct values have no calendar windows"},
		{"POST /v1/distinct", `{"key":"k","values":["v"],"limits":[{"window":"day",` +
			`"zone":"Asia/Shanghai","max":5}]}`, 422, "distinct values have no calendar windows"},
		{"POST /v1/distinct", `{"key":"k","values":["v"],"window":["1h","day"]}`, 422,
			"distinct values have no calendar windows"},
		{"GET /v1/distinct?key=k&window=week", "", 422, "window: distinct values have no calendar"},
		{"GET /v1/distinct?key=k", "", 422, "window: missing"},
		{"GET /v1/distinct?window=1m", "", 422, "key: missing"},
		{"GET /v1/distinct?key=k&window=9d", "", 422, "window: "},
		{"GET /v1/distinct?key=k&window=1m&values=v", "", 422, "unknown parameter"},
		{"PUT /v1/distinct", "", 405, "want GET or POST"},
	} {
		status(t, call(s, test.request, test.body), test.code, test.want)
	}
	status(t, call(s, "GET /v1/distinct?key=k&window=1d", ""), 200, `"count":0`)
}

// TestDistinctErrors covers errors of the service.
func TestDistinctErrors(t *testing.T) {
	f := newFake()
	s := newServer(t, f)
	for err, code := range map[error]int{twotier.ErrUnavailable: 503,
		twotier.ErrUnknownOutcome: 503,
		twotier.ErrFull:           429} {
		f.err = err
		status(t, call(s, "POST /v1/distinct", `{"key":"k","values":["v"]}`), code, "")
		status(t, call(s, "GET /v1/distinct?key=k&window=1m", ""), code, "")
		batch := call(s, "POST /v1/batch", `{"ops":[{"op":"distinct","key":"k","values":["a"]},`+
			`{"op":"distinct","key":"k","window":"1h"}]}`)
		if n := strings.Count(string(batch.Response.Body()), fmt.Sprint(`"status":`, code)); n != 2 {
			t.Errorf("%d errors of two: %s", n, batch.Response.Body())
		}
	}
}

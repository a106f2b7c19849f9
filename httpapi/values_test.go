package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/request"
)

// TestAcquireValues acquires with values beside events, and compares answers. Values and events are
// counted together or not at all, and each rule that judges counts a verdict on either.
func TestAcquireValues(t *testing.T) {
	s, counted := judging(t, newFake())
	const once = `"limits":[{"window":"1m","max":2}]`
	const few = `"value_limits":[{"window":"\u0031h","max":2},{"max":9,"window":"1d"}]`
	count := func(window string, most, n int, more string) string {
		return fmt.Sprintf(`{"window":"%s","max":%d,"count":%d,"at_least":%[3]d,"at_most":%[3]d,`+
			`"error":0%s}`, window, most, n, more)
	}
	const devices = `,"rule":"devices"`
	for i, test := range []struct{ body, want string }{
		{`{"key":"k",` + few + `,"values":["a","b","a"],` + once + `}`,
			`{"allowed":true,"limits":[{"window":"1m","max":2,"count":1,"remaining":1}],` +
				`"values":{"counts":[` + count("1h", 2, 2, "") + "," + count("1d", 9, 2, "") + `]},` +
				`"retry_after_ms":0,"ts":1767225600000,"source":"memory"}`},
		// A refusal by values counts no event.
		{`{"key":"k",` + few + `,"values":["a","c"],` + once + `}`,
			`"count":1,"remaining":1}],"values":{"counts":[` + count("1h", 2, 2, `,"refused":true`) +
				`,` + count("1d", 9, 2, "") + `]},"refused_by":["value_limits[0]"],` +
				`"retry_after_ms":3600000,"source":"memory"}`},
		{`{"key":"k",` + few + `,"values":["a"],"n":1,` + once + `}`, `"count":2,"remaining":0}]`},
		// A refusal by events adds no value.
		{`{"checks":[{"key":"other","values":["x"],` + few + `},{"key":"k",` + once + `}]}`,
			`{"allowed":false,"checks":[{"key":"other","allowed":true,"limits":[],"values":{"counts":[` +
				count("1h", 2, 0, "") + "," + count("1d", 9, 0, "") +
				`]},"retry_after_ms":0},{"key":"k","allowed":false,`},
		// Without limits on events, none is counted.
		{`{"key":"other","values":["x"],` + few + `}`, `{"allowed":true,"limits":[],"values":` +
			`{"counts":[` + count("1h", 2, 1, "") + "," + count("1d", 9, 1, "") +
			`]},"retry_after_ms":0,"source":"memory"}`},
		{`{"key":"other","values":["y","z"],"dry_run":true,` + few + `}`,
			`"refused_by":["value_limits[0]"]`},
		{`{"checks":[{"key":"k"},{"key":"k"}]}`, "limits: missing"},
		{`{"checks":[{"key":"a","limits":[{"window":"1m","max":1}]},{"key":"other",` +
			`"values":["y","z"],` + few + `}]}`, `"refused_by":["checks[1].value_limits[0]"]`},
		{`{"key":"a","limits":[{"window":"1m","max":1}]}`, `{"allowed":true`},
		// By rules: on, in shadow, off, and with limits on events.
		{`{"key":"r","values":["a","b"],"rules":["devices-off","devices","devices-tight"]}`,
			`"values":{"counts":[` + count("1h", 2, 2, devices) + "," + count("24h", 3, 2, devices) +
				"," + count("1m", 1, 2, `,"refused":true,"rule":"devices-tight","shadow":true`) +
				`]},"retry_after_ms":0,"source":"memory","rules_version":7}`},
		{`{"key":"r","values":["c"],"rules":["login","devices","devices-tight"]}`, `"refused":true` +
			devices + "}," + count("24h", 3, 2, devices) + `,` + count("1m", 1, 2,
			`,"refused":true,"rule":"devices-tight","shadow":true`) +
			`]},"refused_by":["devices/1h"],`},
		{`{"key":"r","values":["c"],"rules":["devices-off"]}`, `"allowed":true`},
		// Default rules judge what names no limits.
		{`{"ns":"risk","key":"d","values":["a"]}`, `"rule":"risk"}],"values":{"counts":[` +
			count("24h", 1, 1, `,"rule":"risk"`) + `]}`},
		{`{"ns":"risk","key":"d","values":["b"]}`, `"refused_by":["risk"]`},
		{`{"ns":"cards","key":"d","values":["b"]}`, `"limits":[],"values":{"counts":[`},
	} {
		got := string(call(s, "POST /v1/acquire", test.body).Response.Body())
		if !strings.Contains(got, test.want) {
			t.Errorf("%d: %s\n got %s\nwant %s", i, test.body, got, test.want)
		}
	}
	want := "http cards/cards [1 0 0 0]\nhttp default/ [9 3 0 0]\n" +
		"http default/devices [1 1 0 0]\nhttp default/devices-tight [0 0 2 0]\n" +
		"http default/login [1 0 0 0]\nhttp risk/risk [3 1 0 0]"
	if got := counted(); got != want {
		t.Errorf("verdicts\n%s\nwant\n%s", got, want)
	}
}

// TestAcquireValuesInBatch reads operations whose kind follows their values.
func TestAcquireValuesInBatch(t *testing.T) {
	s := newServer(t, newFake())
	const few = `"values":["a"],"value_limits":[{"window":"1h","max":1}]`
	got := call(s, "POST /v1/batch", `{"ops":[{`+few+`,"op":"acquire","key":"k"},{"op":"acquire",`+
		`"key":"k",`+strings.ReplaceAll(few, `"a"`, `"b"`)+`},{"values":["b"],"op":"distinct",`+
		`"key":"k","window":"1h"},{`+few+`,"op":"distinct","key":"k"},{"values":["v",""],`+
		`"op":"acquire"}]}`)
	for _, want := range []string{`{"allowed":true,"limits":[],"values"`,
		`{"allowed":false,"limits":[],"values"`, `"counts":[{"window":"1h","count":2,`,
		"value_limits: unknown field; distinct has", "values[1]: want 1 to 1024 bytes"} {
		status(t, got, 200, want)
	}
}

// TestAcquireValuesRefusals: a refusal names the wrong field, and adds nothing.
func TestAcquireValuesRefusals(t *testing.T) {
	s := newServer(t, newFake())
	many := strings.Repeat(`"v",`, request.MaxValues) + `"v"`
	const few = `"value_limits":[{"window":"1h","max":2}]`
	const values = `{"key":"k","values":["v"],`
	for body, want := range map[string]string{
		`{"key":"k",` + few + `}`:                             "values: missing",
		`{"key":"k","values":[],` + few + `}`:                 "values: missing",
		`{"key":"k","values":["v",""],` + few + `}`:           "values[1]: want 1 to 1024 bytes",
		`{"key":"k","values":[` + many + `],` + few + `}`:     "values: want at most 1000 values",
		`{"key":"k","values":["v"]}`:                          "value_limits: missing",
		values + `"limits":[{"window":"1m","max":1}]}`:        "value_limits: missing",
		values + `"rules":["login"]}`:                         "value_limits: missing",
		values + `"value_limits":[{"window":"1h"}]}`:          "value_limits[0].max: missing",
		values + `"value_limits":[{"max":1}]}`:                "value_limits[0].window: missing",
		values + `"value_limits":[{"window":"day","max":1}]}`: "value_limits[0].window: want a",
		values + `"value_limits":[{"window":"1h","max":-1}]}`: "value_limits[0].max: want 0 or more",
		values + `"value_limits":[{"concurrent":1}]}`:         "value_limits[0].concurrent: unknown",
		values + `"value_limits":[{"window":"2d","max":1}]}`:  "value_limits[0].window: 48h is",
		values + few + `,"value_limits":[]}`:                  "value_limits: given twice",
		values + few + `,"hold":"1m"}`:                        "hold: an acquire with values can't",
		values + few + `,"ts":5}`:                             "ts: an acquire with values can't",
		values + few + `,"charge":true}`:                      "charge: an acquire with values",
		values + few + `,"count_denied":true}`:                "count_denied: an acquire with",
		values + few + `,"n":-1}`:                             "n: want 0 to",
		`{"checks":[` + values + few + `,"n":-1}]}`:           "checks[0].n: want 0 to",
		`{"checks":[{"key":"k"}],"values":["v"]}`:             "limits: missing",
		`{"checks":[` + values + few + `}],"values":["v"]}`:   "either checks or values",
		`{"checks":[` + values + `"value_limits":[{"window":"2d","max":1}]},{"key":"l",` +
			`"limits":[{"window":"1m","max":1}]}]}`: "checks[0].value_limits[0].window: 48h is",
	} {
		status(t, call(s, "POST /v1/acquire", body), 422, want)
	}
	status(t, call(s, "GET /v1/distinct?key=k&window=1d", ""), 200, `"count":0`)
}

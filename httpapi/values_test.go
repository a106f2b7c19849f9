package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"twotier.dev/twotier/httpapi"
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

// results returns the answers to the operations of a batch.
func results(t *testing.T, s *httpapi.Server, ops ...string) []string {
	t.Helper()
	got := call(s, "POST /v1/batch", `{"ops":[`+strings.Join(ops, ",")+`]}`)
	status(t, got, 200, "")
	var answer struct{ Results []rawText }
	decode(t, got.Response.Body(), &answer)
	if len(answer.Results) != len(ops) {
		t.Fatalf("%d results of %d operations: %s", len(answer.Results), len(ops),
			got.Response.Body())
	}
	var all []string
	for _, r := range answer.Results {
		all = append(all, string(r))
	}
	return all
}

// rawText is unparsed JSON.
type rawText string

func (r *rawText) UnmarshalJSON(b []byte) error {
	*r = rawText(b)
	return nil
}

// TestBatchAnswersAsSingleRequests sends operations on values to one server in batches, among
// others, and to another one as single requests: all answers are the same.
func TestBatchAnswersAsSingleRequests(t *testing.T) {
	batched, countedBatched := judging(t, newFake())
	alone, countedAlone := judging(t, newFake())
	bodies := []string{
		`"key":"k","values":["a","b","a"]`,
		`"key":"k","values":["c"],"window":"1m,1h","limits":[{"window":"1d","max":3}]`,
		`"window":["7h"],"key":"k","values":["d"],"limits":[{"window":"1h","max":3}]`,
		`"limits":[{"window":"2h","max":9}],"rules":["devices-tight","devices","devices-off"],` +
			`"values":["e"],"key":"k"`,
		`"values":["\u00e9"],"key":"l\u00e9","rules":["devices"],"window":"1m"`,
		`"key":"vip","values":["a","b","c","d"],"rules":["devices"]`,
		`"key":"k","values":["e"],"rules":["devices-off"]`,
		fmt.Sprintf(`"key":"late","values":["v"],"window":"1m","ts":%d`, noon-30_000),
		`"ns":"risk","key":"k","values":["a"]`,
		`"ns":"risk","key":"k","values":["b"]`,
		`"ns":"risk","key":"k","values":["b"],"ack":"redis","limits":[{"window":"1h","max":2}]`,
		`"key":"k","values":["v"],"rules":["login"]`,
		`"key":"k","values":["v"],"ts":1`,
		`"key":"k","values":["v"],"window":"9d"`,
		`"key":"k","values":["",""]`,
		`"values":["v"]`,
	}
	var ops, want []string
	for i, body := range bodies {
		form := []string{`{"op":"distinct",%s}`, `{%s,"op":"distinct"}`}[i%2]
		ops = append(ops, `{"op":"add","key":"k"}`, fmt.Sprintf(form, body))
		want = append(want, `{"key":"k","counts":[],"over":false,"source":"memory"}`)
		single := call(alone, "POST /v1/distinct", "{"+body+"}")
		text := string(single.Response.Body())
		if single.Response.StatusCode() != 200 {
			text = `{"error":` + text + `}`
		}
		want = append(want, text)
	}
	for i, got := range results(t, batched, ops...) {
		if got != want[i] {
			t.Errorf("%s:\n got %s\nwant %s", ops[i], got, want[i])
		}
	}
	for _, query := range []string{"key=k&window=1m,24h", "key=vip&ns=default&window=1h",
		fmt.Sprintf("key=late&window=1m&at=%d", noon)} {
		single := string(call(alone, "GET /v1/distinct?"+query, "").Response.Body())
		op := `{"op":"distinct"`
		for part := range strings.SplitSeq(query, "&") {
			name, value, _ := strings.Cut(part, "=")
			if name != "at" {
				value = `"` + value + `"`
			}
			op += `,"` + name + `":` + value
		}
		if got := results(t, batched, op+"}")[0]; got != single {
			t.Errorf("%s\n got %s\nwant %s", op, got, single)
		}
	}
	if got, want := countedBatched(), countedAlone(); got != want || got == "" {
		t.Errorf("verdicts\n%s\nwant\n%s", got, want)
	}
}

// TestBatchKeepsTheOrderOfAKey adds to a few keys many times, among others: each addition sees the
// values of the earlier additions and none of the later ones.
func TestBatchKeepsTheOrderOfAKey(t *testing.T) {
	s := newServer(t, newFake())
	const keys, rounds, most = 40, 12, 9
	var ops, want []string
	for i := range rounds {
		for k := range keys {
			ops = append(ops, fmt.Sprintf(`{"op":"distinct","key":"k%d","values":["v%d"],`+
				`"limits":[{"window":"1h","max":%d}]}`, k, i, most))
			count, over := i+1, ""
			if i >= most {
				count, over = most, `,"refused":true`
			}
			want = append(want, fmt.Sprintf(`{"key":"k%d","counts":[{"window":"1h","max":%d,`+
				`"count":%[3]d,"at_least":%[3]d,"at_most":%[3]d,"error":0%[4]s}],"over":%[5]t`,
				k, most, count, over, i >= most))
		}
	}
	for i, got := range results(t, s, ops...) {
		if !strings.HasPrefix(got, want[i]) {
			t.Fatalf("%d: %s\n got %s\nwant %s", i, ops[i], got, want[i])
		}
	}
}

// TestBatchOfValuesRefusals: each wrong operation of a batch gets its reason, and the others run.
// TestDistinctRefusals has the reasons that single requests get as well.
func TestBatchOfValuesRefusals(t *testing.T) {
	for _, test := range []struct{ op, want string }{
		{`"op":"distinct"`, "key: missing"},
		{`"op":"distinct","key":"k"`, "window: missing"},
		{`"op":"distinct","key":"k","values":["a",1]`, "values[1]: want a string"},
		{`"op":"distinct","key":"k","window":"1h","at":1,"values":["a"]`,
			"at: is for counting; values that are added have ts"},
		{`"op":"distinct","key":"k","window":"1h","ts":1`, "ts: is for values that are added"},
		{`"op":"distinct","key":"k","window":"1h","rules":["devices"]`,
			"rules: is for values that are added; want values"},
		{`"limits":[{"window":"1h","max":1}],"key":"k","op":"distinct","window":"1h"`,
			"limits: is for values that are added"},
		{`"n":2,"op":"distinct","key":"k","values":["v"]`, "n: unknown field; distinct has ns"},
		{`"checks":[{"key":"x","limits":[{"window":"1h","max":1}]}],"op":"distinct","key":"k",` +
			`"values":["v"]`, "checks: unknown field; distinct has ns"},
		{`"op":"distinct","key":"k","values":["v"],"op":"add"`, "op: given twice"},
		{`"op":"distinct","key":"k","values":["v"],"ack":"disk"`,
			"ack: counts are kept in the memory of this server"},
		{`"values":["v"],"op":"add","key":"k"`, "values: unknown field; add has"},
		{`"values":["v"],"key":"k"`, `op: missing; want \"add\", \"count\", \"acquire\" or`},
	} {
		s := newServer(t, newFake())
		const good = `{"op":"distinct","key":"k","values":["good"],"window":"1h"}`
		got := results(t, s, good, "{"+test.op+"}", `{"op":"count","key":"x","window":"1h"}`, good)
		if !strings.HasPrefix(got[1], `{"error":{`) || !strings.Contains(got[1], test.want) {
			t.Errorf("%s: %s", test.op, got[1])
		}
		for _, i := range []int{0, 2, 3} {
			if strings.Contains(got[i], `"error":{`) {
				t.Errorf("beside %s: %s", test.op, got[i])
			}
		}
		quiet := call(s, "POST /v1/batch", `{"quiet":true,"ops":[`+good+`,{`+test.op+`}]}`)
		status(t, quiet, 200, `{"ops":2,"errors":[{"index":1,"error":{`)
		status(t, quiet, 200, test.want)
		status(t, quiet, 200, `"added":1,"allowed":0,"refused":0}`)
	}
}

// BenchmarkDistinct reads, executes and answers operations on values, alone and 50 in a batch. Each
// adds a known value to one of many keys, with a limit.
func BenchmarkDistinct(b *testing.B) {
	for _, size := range []int{1, 50} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := newServer(b, newFake())
			var ops []string
			for i := range size {
				ops = append(ops, fmt.Sprintf(`"key":"user%d","values":["phone"],`+
					`"limits":[{"window":"24h","max":5}]}`, i))
			}
			ctx := newRequest("POST /v1/distinct", "{"+ops[0])
			if size > 1 {
				ctx = newRequest("POST /v1/batch", `{"ops":[{"op":"distinct",`+
					strings.Join(ops, `,{"op":"distinct",`)+"]}")
			}
			benchmark(b, s, ctx, size)
		})
	}
}

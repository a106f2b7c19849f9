package httpapi_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/httpapi/internal/codec"
	"twotier.dev/twotier/httpapi/internal/memory"
	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/ask"
)

// testRules are the rules of newServer.
type testRules struct{}

var _ ask.Rules = testRules{}

func (testRules) Rules() *twotier.RuleSet {
	limit := func(seconds, most int64, text string) twotier.RuleLimit {
		return twotier.RuleLimit{Window: seconds * 1000, Max: most, Text: text}
	}
	return twotier.NewRuleSet([]twotier.Rule{
		{Name: "login", Limits: []twotier.RuleLimit{limit(60, 3, "1m"), limit(3600, 5, "1h")}},
		{Name: "tight", Limits: []twotier.RuleLimit{limit(60, 1, "1m")}, State: twotier.RuleShadow},
		{Name: "off", Limits: []twotier.RuleLimit{limit(60, 0, "1m")}, State: twotier.RuleOff},
		{Name: "sms", Namespace: "sms", Limits: []twotier.RuleLimit{limit(60, 2, "1m")}},
		{Name: "sms-day", Namespace: "sms", Limits: []twotier.RuleLimit{limit(86400, 9, "24h")}},
		{Name: "daily", Namespace: "default-ns", Default: true,
			Limits: []twotier.RuleLimit{limit(60, 2, "1m")}, Overrides: []twotier.Override{
				{Prefix: "corp-", Limits: []twotier.RuleLimit{limit(60, 4, "1m"), limit(3600,
					8, "1h")}},
				{Prefix: "x-key=corp-", Limits: []twotier.RuleLimit{limit(60, 4, "1m"), limit(3600,
					8,
					"1h")}},
				{Key: "corp-1", Limits: []twotier.RuleLimit{limit(60, 1, "1m")}}}},
		{Name: "strict", Ban: 600_000, Limits: []twotier.RuleLimit{limit(60, 3, "1m"),
			limit(3600, 5, "1h")}},
		{Name: "strict-off", Ban: 600_000, State: twotier.RuleOff, Limits: []twotier.RuleLimit{
			limit(60, 3, "1m")}},
		{Name: "devices", Distinct: []twotier.RuleLimit{limit(3600, 2, "1h"), limit(86400,
			3, "24h")},
			Overrides: []twotier.Override{{Key: "vip", Distinct: []twotier.RuleLimit{limit(3600,
				9, "1h")}}}},
		{Name: "devices-tight", State: twotier.RuleShadow, Distinct: []twotier.RuleLimit{limit(60,
			1, "1m")}},
		{Name: "devices-off", State: twotier.RuleOff, Distinct: []twotier.RuleLimit{limit(60,
			0, "1m")}},
		{Name: "risk", Namespace: "risk", Default: true, Limits: []twotier.RuleLimit{limit(60,
			9, "1m")},
			Distinct: []twotier.RuleLimit{limit(86400, 1, "24h")}},
		{Name: "cards", Namespace: "cards", Default: true,
			Distinct: []twotier.RuleLimit{limit(86400, 1, "24h")}},
		{Name: "warned", Namespace: "warned", Warn: 80, Limits: []twotier.RuleLimit{
			limit(60, 3, "1m"), limit(3600, 5, "1h")}},
		{Name: "warned-shadow", Namespace: "warned", Warn: 50, State: twotier.RuleShadow,
			Limits: []twotier.RuleLimit{limit(60, 2, "1m")}},
		{Name: "warned-values", Warn: 100, Distinct: []twotier.RuleLimit{limit(3600, 2, "1h"),
			limit(86400, 9, "24h")}},
		{Name: "monthly", Limits: []twotier.RuleLimit{monthly()}},
		{Name: "never", Namespace: "never", Limits: []twotier.RuleLimit{limit(60, 0, "1m")}},
	}).Numbered(7)
}

// TestRulesInPlaceOfLimits sends limits to one server, and the names of rules with the same limits
// to another one: both decide the same, and find the same counts.
func TestRulesInPlaceOfLimits(t *testing.T) {
	const limits = `"limits":[{"window":"1m","max":3},{"window":"1h","max":5}]`
	a, b := newServer(t, newFake()), newServer(t, newFake())
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	refused := 0
	for i := range 200 {
		call(a, "GET /healthz", "") // keeps the servers apart
		body := fmt.Sprintf(`{"key":"k%d","n":%d,%%s}`, random.IntN(40), 1+random.IntN(2))
		path := []string{"POST /v1/acquire", "POST /v1/acquire?deny=429", "POST /v1/add"}[i%3]
		x := call(a, path, fmt.Sprintf(body, limits))
		y := call(b, path, fmt.Sprintf(body, `"rules":["login"]`))
		want := strings.NewReplacer("limits[0]", "login/1m", "limits[1]", "login/1h").
			Replace(string(x.Response.Body()) + x.Response.Header.String())
		got := strings.ReplaceAll(string(y.Response.Body()), `,"rule":"login"`, "")
		got = strings.Replace(got, `,"rules_version":7}`, "}", 1)
		got += y.Response.Header.String()
		if trimHeader(got) != trimHeader(want) {
			t.Fatalf("seed %d, %d: %s %s\n got %s\nwant %s", seed, i, path, body, got, want)
		}
		if strings.Contains(got, `"allowed":false`) {
			refused++
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
}

// trimHeader cuts out of a response its length, which differs by the names, and its date.
func trimHeader(response string) string {
	for _, name := range []string{"Content-Length: ", "Date: "} {
		before, after, _ := strings.Cut(response, name)
		_, after, _ = strings.Cut(after, "\r\n")
		response = before + after
	}
	return response
}

func TestRulesOfEachState(t *testing.T) {
	s := newServer(t, newFake())
	for i, want := range []string{
		`{"allowed":true,"limits":[{"window":"1h","max":9,"count":1,"remaining":8},` +
			`{"window":"1m","max":1,"count":1,"remaining":0,"rule":"tight","shadow":true}],` +
			`"retry_after_ms":0,"source":"memory","rules_version":7}`,
		`{"allowed":true,"limits":[{"window":"1h","max":9,"count":2,"remaining":7},` +
			`{"window":"1m","max":1,"count":2,"remaining":0,"refused":true,"rule":"tight",` +
			`"shadow":true}],"retry_after_ms":0,"source":"memory","rules_version":7}`,
	} {
		got := call(s, "POST /v1/acquire", `{"key":"k","rules":["off","tight"],`+
			`"limits":[{"window":"1h","max":9}]}`)
		// The rules are read first, and so their limits come first.
		if body := string(got.Response.Body()); !sameLimits(body, want) {
			t.Errorf("%d: %s\nwant %s", i, body, want)
		}
	}
	got := call(s, "POST /v1/acquire", `{"key":"off","rules":["off"]}`).Response.Body()
	if want := `{"allowed":true,"limits":[],"retry_after_ms":0,"source":"memory",` +
		`"rules_version":7}`; string(got) != want {
		t.Errorf("only a rule that is off: %s", got)
	}
	if n := count(t, s, "off"); n != 1 {
		t.Errorf("a rule that is off counted %d, want 1", n)
	}
}

// sameLimits reports whether two answers with two limits differ only in the limits' order.
func sameLimits(a, b string) bool {
	split := func(s string) (string, string, string) {
		head, rest, _ := strings.Cut(s, `"limits":[`)
		limits, tail, _ := strings.Cut(rest, `]`)
		first, second, _ := strings.Cut(limits, `},{`)
		first, second = strings.Trim(first, "{}"), strings.Trim(second, "{}")
		return head + tail, min(first, second), max(first, second)
	}
	a1, a2, a3 := split(a)
	b1, b2, b3 := split(b)
	return a1 == b1 && a2 == b2 && a3 == b3
}

func count(t *testing.T, s *httpapi.Server, key string) int {
	t.Helper()
	var answer struct{ Counts []struct{ Count int } }
	decode(t, call(s, "GET /v1/count?window=1m&key="+key, "").Response.Body(), &answer)
	return answer.Counts[0].Count
}

// TestTheVersionThatJudged looks for the version in every kind of answer: an answer has it if the
// request named rules, and only then.
func TestTheVersionThatJudged(t *testing.T) {
	s := newServer(t, newFake())
	const version = `"rules_version":7`
	got := string(call(s, "POST /v1/add", `{"key":"k","rules":["login"]}`).Response.Body())
	if !strings.Contains(got, version) {
		t.Errorf("add: %s", got)
	}
	auth := call(s, "GET /v1/forward-auth?rule=login", "")
	if got := string(auth.Response.Header.Peek("Twotier-Rules-Version")); got != "7" {
		t.Errorf("forward-auth: %q", got)
	}
	const ops = `"ops":[{"op":"add","key":"k"},{"op":"acquire","key":"k","rules":["login"]},` +
		`{"op":"count","key":"k","window":"1m"},{"op":"add","key":"k"}]`
	batch := call(s, "POST /v1/batch", "{"+ops+"}").Response.Body()
	var answer struct{ Results []map[string]any }
	decode(t, batch, &answer)
	for i, r := range answer.Results {
		if _, ok := r["rules_version"]; ok != (i == 1) || len(answer.Results) != 4 {
			t.Errorf("batch, result %d: %v", i, r)
		}
	}
	quiet := call(s, "POST /v1/batch", `{"quiet":true,`+ops+"}").Response.Body()
	if !strings.HasSuffix(string(quiet), `,"rules_version":7}`) {
		t.Errorf("quiet: %s", quiet)
	}
}

// turning are rules that change on every look-up: the limit is the number of the version.
type turning struct{ asked atomic.Int64 }

func (r *turning) Rules() *twotier.RuleSet {
	n := r.asked.Add(1)
	limits := []twotier.RuleLimit{{Window: 60_000, Max: 1000 + n, Text: "1m"}}
	return twotier.NewRuleSet([]twotier.Rule{{Name: "a", Limits: limits}, {Name: "b",
		Limits: limits},
		{Name: "c", Default: true, Limits: limits}}).Numbered(n)
}

// TestOneVersionForOneRequest checks that one version judges all names in a request, and that a
// request without names looks up none.
func TestOneVersionForOneRequest(t *testing.T) {
	changing := new(turning)
	s := serverOf(t, httpapi.Options{Rules: changing})
	const check = `{"key":"k","rules":["a","b"]}`
	for _, request := range []string{"POST /v1/acquire " + check,
		`POST /v1/acquire {"checks":[` + check + `,{"key":"x"},{"key":"y","rules":["b"]}]}`,
		`POST /v1/batch {"ops":[{"op":"acquire","key":"k"},{"op":"add","key":"k","rules":["a"]},` +
			`{"op":"acquire","key":"z","rules":["a","b"]}]}`,
		"GET /v1/forward-auth?rule=a&key=X-A&rule=b&key=X-B "} {
		before := changing.asked.Load()
		method, rest, _ := strings.Cut(request, " ")
		path, body, _ := strings.Cut(rest, " ")
		got := string(call(s, method+" "+path, body).Response.Body())
		version := before + 1
		limit, named := fmt.Sprintf(`"max":%d,`, 1000+version), fmt.Sprintf(`"rules_version":%d`,
			version)
		if changing.asked.Load() != version || !strings.Contains(got, named) ||
			path != "/v1/batch" && strings.Count(got, limit) != strings.Count(got, `"max":`) {
			t.Errorf("%s: asked %d times: %s", request, changing.asked.Load()-before, got)
		}
	}
	before := changing.asked.Load()
	call(s, "POST /v1/acquire", `{"key":"k","limits":[{"window":"1m","max":9}]}`)
	call(s, "POST /v1/add", `{"key":"k"}`)
	if changing.asked.Load() != before {
		t.Error("requests without rules asked for them")
	}
}

func TestRefusedByNamesRulesAndLimits(t *testing.T) {
	s := newServer(t, newFake())
	got := call(s, "POST /v1/acquire", `{"checks":[{"key":"a","rules":["never"]},{"key":"b","n":4,`+
		`"limits":[{"window":"1m","max":9},{"window":"1h","max":1}],"rules":["login"]},{"key":"c",`+
		`"rules":["sms"],"n":3,"limits":[{"window":"1m","max":2}]}]}`).Response.Body()
	for _, path := range []string{`"checks[0].never"`, `"checks[1].limits[1]"`,
		`"checks[1].login/1m"`, `"checks[2].sms"`, `"checks[2].limits[0]"`} {
		if !strings.Contains(string(got), path) {
			t.Errorf("no %s in %s", path, got)
		}
	}
	if strings.Contains(string(got), `"checks[1].login/1h"`) {
		t.Errorf("the second limit of login refused: %s", got)
	}
}

// TestDefaultRulesAndOverrides acquires in a namespace with a default rule that has overrides for
// some keys, whatever the order of the fields.
func TestDefaultRulesAndOverrides(t *testing.T) {
	s := newServer(t, newFake())
	for body, want := range map[string]string{
		`{"ns":"default-ns","key":"a"}`: `[{"window":"1m","max":2,"count":1,"remaining":1,` +
			`"rule":"daily"}]`,
		`{"rules":["daily"],"key":"b"}`:                   `"max":2,`,
		`{"ns":"default-ns","rules":["daily"],"key":"b"}`: `"max":2,`,
		`{"key":"corp-1","ns":"default-ns","rules":[]}`:   `"max":1,`,
		`{"rules":["daily"],"key":"corp-1"}`:              `"max":1,`,
		`{"ns":"default-ns","key":"corp-2"}`:              `"max":8,`,
		`{"checks":[{"ns":"default-ns","key":"corp-3"}]}`: `"max":8,`,
		`{"key":"corp-4","rules":["daily"],"n":5}`:        `"refused_by":["daily/1m"]`,
		`{"key":"corp-1","rules":["daily"],"n":5}`:        `"refused_by":["daily"]`,
		`{"n":5,"ns":"default-ns","key":"x","n_":1}`:      `unknown field`,
		`{"ns":"default-ns","limits":[{"window":"1m","max":7}],"key":"c"}`: `[{"window":"1m",` +
			`"max":7,"count":1,"remaining":6}],"retry_after_ms":0,"source":"memory"}`,
		`{"key":"a"}`: "limits: missing",
	} {
		if got := string(call(s, "POST /v1/acquire", body).Response.Body()); !strings.Contains(got,
			want) {
			t.Errorf("%s: %s\nwant %s", body, got, want)
		}
	}
	got := string(call(s, "POST /v1/add", `{"ns":"default-ns","key":"z"}`).Response.Body())
	if !strings.Contains(got, `"counts":[]`) {
		t.Errorf("an add is judged by a default rule: %s", got)
	}
	auth := call(s, "GET /v1/forward-auth?rule=daily&key=X-Key", "", "X-Key: corp-9")
	if got := string(auth.Response.Header.Peek("RateLimit-Policy")); got !=
		`"daily/1m";q=4;w=60, "daily/1h";q=8;w=3600` {
		t.Errorf("policy of an override: %s", got)
	}
}

func TestBadRules(t *testing.T) {
	s := newServer(t, newFake())
	for body, want := range map[string]string{
		`{"key":"k","rules":["nobody"]}`:                                      `rules[0]: there is no rule \"nobody\"`,
		`{"key":"k","rules":["login","sms"]}`:                                 `rules[1]: rule login counts in namespace default and rule sms in sms`,
		`{"ns":"x","key":"k","rules":["sms"]}`:                                `ns: rule sms counts in namespace sms; leave ns out`,
		`{"key":"k","rules":"sms"}`:                                           `a list of names`,
		`{"key":"k","rules":[]}`:                                              `limits: missing`,
		`{"checks":[{"key":"k","rules":["sms"]}],"rules":[""]}`:               `there is no rule \"\"`,
		`{"key":"k","rules":[` + strings.Repeat(`"login",`, 16) + `"login"]}`: `at most 16 rules`,
	} {
		status(t, call(s, "POST /v1/acquire", body), 422, want)
	}
	batch := call(s, "POST /v1/batch", `{"ops":[{"op":"acquire","key":"a","rules":["login","x"]},`+
		`{"op":"acquire","key":"a","rules":["login"]},{"op":"count","key":"a","rules":["login"]}]}`)
	body := string(batch.Response.Body())
	if strings.Count(body, `"error"`) != 2 || !strings.Contains(body, `"count":1`) ||
		strings.Count(body, `"rule":"login"`) != 2 {
		t.Errorf("batch: %s", body)
	}
}

// noMemory refuses every reservation.
type noMemory struct{}

// Reserve implements [codec.Memory].
func (noMemory) Reserve(int64) *wire.Problem { return memory.BusyProblem() }

// TestRulesGetMemoryFirst names a rule when no memory is left: none of its limits is added.
func TestRulesGetMemoryFirst(t *testing.T) {
	d := codec.Decoder{Memory: noMemory{}}
	d.Rules = testRules{}
	p := d.DecodeSingle([]byte(`{"key":"a","rules":["login"]}`), twotier.Acquire)
	if p == nil || p.Kind != wire.Overload || d.RuledCount() > 0 {
		t.Errorf("%v, and %d limits of the rule are there", p, d.RuledCount())
	}
}

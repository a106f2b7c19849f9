package httpapi_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/verdicts"
)

// judging returns a server that counts its verdicts, and a function that reads them: a line for
// each row.
func judging(t testing.TB, f *fake) (*httpapi.Server, func() string) {
	t.Helper()
	c := verdicts.New()
	s, err := httpapi.New(httpapi.Options{Service: f, Rules: testRules{},
		Verdicts: c, Collectors: []prometheus.Collector{c}})
	if err != nil {
		t.Fatal(err)
	}
	return s, func() string {
		var lines []string
		for _, r := range c.Rows() {
			lines = append(lines,
				fmt.Sprintf("%v %s/%s %v", r.Door, r.Namespace, r.Rule, r.Totals))
		}
		return strings.Join(lines, "\n")
	}
}

// TestVerdictsAreCounted sends requests and compares their additions to the counters: allowed,
// refused and refused in shadow.
func TestVerdictsAreCounted(t *testing.T) {
	const limit = `"limits":[{"window":"1m","max":1}]`
	near := func(n int) string {
		return fmt.Sprintf(`{"key":"k","n":%d,"rules":["warned","warned-shadow"]}`, n)
	}
	twice := func(body string) []string { return []string{body, body} }
	for _, tt := range []struct {
		name, path string
		bodies     []string
		want       string
	}{
		{"limits", "POST /v1/acquire", twice(`{"key":"k",` + limit + `}`),
			"http default/ [1 1 0 0]"},
		{"namespace", "POST /v1/acquire", twice(`{"ns":"sms","key":"k",` + limit + `}`),
			"http sms/ [1 1 0 0]"},
		{"dry run", "POST /v1/acquire", twice(`{"key":"k","dry_run":true,` + limit + `}`), ""},
		{"add", "POST /v1/add", twice(`{"key":"k",` + limit + `}`), ""},
		{"refused field", "POST /v1/acquire", twice(`{"key":"k"}`), ""},
		{"rule", "POST /v1/acquire", twice(`{"key":"k","n":2,"rules":["login"]}`),
			"http default/login [1 1 0 0]"},
		{"shadow", "POST /v1/acquire", twice(`{"key":"k","rules":["tight"]}`),
			"http default/tight [1 0 1 0]"},
		{"counted refusals in shadow", "POST /v1/acquire", []string{
			`{"key":"k","charge":true,"limits":[{"window":"1m","max":0}],"rules":["tight"]}`,
			`{"key":"l","count_denied":true,"limits":[{"window":"1m","max":0}],"rules":["tight"]}`},
			"http default/ [0 2 0 0]\nhttp default/tight [2 0 0 0]"},
		{"no events in shadow", "POST /v1/acquire", []string{`{"key":"k","rules":["tight"]}`,
			`{"checks":[{"key":"l","rules":["login"]},{"key":"k","n":0,"rules":["tight"]}]}`},
			"http default/login [1 0 0 0]\nhttp default/tight [1 0 1 0]"},
		{"near", "POST /v1/acquire", []string{near(2), near(1), near(1),
			`{"key":"k","n":9,"dry_run":true,"rules":["warned"]}`},
			"http warned/warned [1 1 0 1]\nhttp warned/warned-shadow [0 0 2 1]"},
		{"off", "POST /v1/acquire", twice(`{"key":"k","rules":["off"]}`), ""},
		{"rules and limits", "POST /v1/acquire",
			twice(`{"key":"k","rules":["off","tight","login"],` + limit + `}`),
			"http default/ [1 1 0 0]\nhttp default/login [2 0 0 0]\nhttp default/tight [1 0 1 0]"},
		{"limits and rules", "POST /v1/acquire", twice(`{"key":"k",` + limit + `,"rules":["login"]}`),
			"http default/ [1 1 0 0]\nhttp default/login [2 0 0 0]"},
		{"checks", "POST /v1/acquire", twice(`{"checks":[{"key":"a",` + limit +
			`},{"key":"b","rules":["sms"]}]}`), "http default/ [1 1 0 0]\nhttp sms/sms [2 0 0 0]"},
		{"batch", "POST /v1/batch", twice(`{"ops":[{"op":"acquire","key":"k",` + limit +
			`},{"op":"add","key":"k"},{"op":"acquire"},{"op":"acquire","key":"k",` + limit + `}]}`),
			"http default/ [1 3 0 0]"},
		{"forward-auth", "GET /v1/forward-auth?rule=sms&rule=sms-day&key=ip",
			make([]string, 3),
			"forward-auth sms/sms [2 1 0 0]\nforward-auth sms/sms-day [3 0 0 0]"},
	} {
		s, counted := judging(t, newFake())
		for _, body := range tt.bodies {
			call(s, tt.path, body)
		}
		if got := counted(); got != tt.want {
			t.Errorf("%s: got\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

// TestFailuresHaveNoVerdict because nobody decided.
func TestFailuresHaveNoVerdict(t *testing.T) {
	f := newFake()
	f.err = errors.New("a test asked for it")
	s, counted := judging(t, f)
	const op = `"key":"k","limits":[{"window":"1m","max":1}]`
	call(s, "POST /v1/acquire", "{"+op+"}")
	call(s, "POST /v1/batch", `{"ops":[{"op":"acquire",`+op+`}]}`)
	if got := counted(); got != "" {
		t.Error(got)
	}
}

// TestVerdictsAreShown in the metrics, with the duration of decisions.
func TestVerdictsAreShown(t *testing.T) {
	s, _ := judging(t, newFake())
	call(s, "POST /v1/acquire", `{"key":"k","rules":["login"]}`)
	page := string(call(s, "GET /metrics", "").Response.Body())
	for _, want := range []string{
		`twotier_decisions_total{door="http",ns="default",rule="login",verdict="allowed"} 1`,
		`twotier_decision_seconds_count{door="http"} 1`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("no %s in\n%s", want, page)
		}
	}
}

// TestVerdictsOfOthersAreNotShown to a token for some namespaces.
func TestVerdictsOfOthersAreNotShown(t *testing.T) {
	store, texts := tokens(t, "shop count,read login", "all count,read *", "main read default")
	c := verdicts.New()
	s := guarded(t, httpapi.Options{Tokens: store, Verdicts: c,
		Collectors: []prometheus.Collector{c}})
	for _, ns := range []string{"login", "bank"} {
		as(s, texts["all"], "POST /v1/acquire",
			`{"ns":"`+ns+`","key":"k","limits":[{"window":"1m","max":1}]}`)
	}
	for name, want := range map[string][]bool{"shop": {true, false}, "all": {true, true},
		"main": {false, false}} {
		page := string(as(s, texts[name], "GET /metrics", "").Response.Body())
		for i, ns := range []string{`ns="login"`, `ns="bank"`} {
			if strings.Contains(page, ns) != want[i] {
				t.Errorf("%s sees %s: %v, want %v", name, ns, !want[i], want[i])
			}
		}
		if !strings.Contains(page, `twotier_decision_seconds_count{door="http"} 2`) {
			t.Errorf("%s does not see the rest:\n%s", name, page)
		}
	}
}

// BenchmarkVerdicts sends acquires over a connection, with and without counting their verdicts.
func BenchmarkVerdicts(b *testing.B) {
	for _, tt := range []struct {
		name     string
		counters *verdicts.Counters
	}{{"without", nil}, {"with", verdicts.New()}} {
		b.Run(tt.name, func(b *testing.B) {
			s, err := httpapi.New(httpapi.Options{Service: newFake(), Listen: "127.0.0.1:0",
				Verdicts: tt.counters})
			if err != nil {
				b.Fatal(err)
			}
			if err := s.Open(b.Context()); err != nil {
				b.Fatal(err)
			}
			client := &fasthttp.HostClient{Addr: s.Addr().String()}
			req, res := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
			req.Header.SetMethod("POST")
			req.Header.SetContentType("application/json")
			req.SetRequestURI("http://" + s.Addr().String() + "/v1/acquire")
			req.SetBodyString(hot[2].body)
			for b.Loop() {
				if err := client.DoTimeout(req, res, time.Minute); err != nil {
					b.Fatal(err)
				}
			}
			client.CloseIdleConnections()
			if err := s.Close(b.Context()); err != nil {
				b.Error(err)
			}
		})
	}
}

package client_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/testing/must"
)

// named are the rules of a bed's servers.
type named struct{ set *twotier.RuleSet }

func (n named) Rules() *twotier.RuleSet { return n.set }

// someRules returns the rules of every bed: some for tests, and the rules of message control.
func someRules() named {
	const path = "../../deploy/message-control/rules.yaml"
	text, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	messages, err := rules.Read(path, text)
	if err != nil {
		panic(err)
	}
	minute := twotier.RuleLimit{Window: 60_000, Max: 3, Text: "1m"}
	day := func(most int64) []twotier.RuleLimit {
		return []twotier.RuleLimit{{Window: 24 * 3600_000, Max: most, Text: "24h"}}
	}
	list := []twotier.Rule{
		{Name: "login", Limits: []twotier.RuleLimit{minute}},
		{Name: "pair", Namespace: "other", Limits: []twotier.RuleLimit{minute,
			{Window: 18 * 3600_000, Max: 5, Text: "0d18h"}}},
		{Name: "watched", Namespace: "other", State: twotier.RuleShadow,
			Limits: []twotier.RuleLimit{{Window: 1500, Max: 1, Text: "1.5s"}}},
		{Name: "many", Limits: slices.Repeat([]twotier.RuleLimit{minute}, 16)},
		{Name: "devices", Namespace: "other", Distinct: day(3),
			Overrides: []twotier.Override{{Key: "one", Distinct: day(1)}}},
		{Name: "spied", Namespace: "other", State: twotier.RuleShadow, Distinct: day(3)},
		{Name: "warned", Namespace: "other", Warn: 50, Limits: []twotier.RuleLimit{minute},
			Distinct: day(4)},
		{Name: "idle", Namespace: "other", State: twotier.RuleOff,
			Limits: []twotier.RuleLimit{minute}},
	}
	for i := range 16 {
		list = append(list, twotier.Rule{Name: fmt.Sprintf("usual%02d", i), Namespace: "usual",
			Default: true, Limits: slices.Repeat([]twotier.RuleLimit{minute}, 16)})
	}
	for _, name := range messages.Rules.Names() {
		list = append(list, *messages.Rules.Find([]byte(name)))
	}
	return named{twotier.NewRuleSet(list)}
}

// TestNear asks for events and values until they are near the limits of a rule.
func TestNear(t *testing.T) {
	c := newBed(t, 3).client()
	for i, want := range [][]string{nil, {"warned"}} {
		check := client.Check{Key: "k", Rules: []string{"warned"}}
		a, err := c.Acquire(t.Context(), client.AcquireRequest{Check: check})
		if err != nil || !a.Allowed || !slices.Equal(a.Near, want) {
			t.Errorf("acquire %d: %v, %+v", i, err, a)
		}
		d, err := c.Distinct(t.Context(), client.DistinctRequest{Key: "k",
			Rules: []string{"warned"}, Values: []string{fmt.Sprint(i)}})
		if err != nil || d.Over || !slices.Equal(d.Near, want) {
			t.Errorf("values %d: %v, %+v", i, err, d)
		}
	}
}

// TestRules names rules in addition to limits. In the answer, the request's limits come first.
func TestRules(t *testing.T) {
	c := newBed(t, 3).client()
	check := client.Check{Key: "k", N: 2, Limits: []client.Limit{{Window: time.Hour, Max: 9}},
		Rules: []string{"pair", "watched", "idle"}}
	a, err := c.Acquire(t.Context(), client.AcquireRequest{Check: check})
	must.Succeed(t, err)
	want := []client.LimitState{
		{Window: time.Hour, Max: 9, Count: 2, Remaining: 7},
		{Window: time.Minute, Max: 3, Count: 2, Remaining: 1, Rule: "pair"},
		{Window: 18 * time.Hour, Max: 5, Count: 2, Remaining: 3, Rule: "pair"},
		{Window: 1500 * time.Millisecond, Max: 1, Count: 2, Rule: "watched", Shadow: true,
			Refused: true},
	}
	if !a.Allowed || !reflect.DeepEqual(a.Limits, want) {
		t.Errorf("%+v", a)
	}
	b, err := c.Acquire(t.Context(), client.AcquireRequest{Checks: []client.Check{
		{Key: "k2", Rules: []string{"login"}}, check}})
	must.Succeed(t, err)
	if b.Allowed || len(b.Checks[0].Limits) != 1 || b.Checks[0].Limits[0].Rule != "login" ||
		len(b.Checks[1].Limits) != 4 || !b.Checks[1].Limits[1].Refused {
		t.Errorf("%+v", b)
	}
	d, err := c.Add(t.Context(), client.AddRequest{Key: "k", N: 2, Limits: check.Limits,
		Rules: check.Rules})
	must.Succeed(t, err)
	if len(d.Counts) != 4 || !d.Over || d.Counts[0].Window != time.Hour || d.Counts[0].Rule != "" ||
		d.Counts[2].Window != 18*time.Hour || d.Counts[2].Rule != "pair" ||
		d.Counts[2].Count != 4 || d.Counts[2].Shadow || !d.Counts[3].Shadow {
		t.Errorf("%+v", d)
	}
	for _, rules := range [][]string{{"none"}, {"login", "pair"}} {
		_, err := c.Acquire(t.Context(), client.AcquireRequest{Check: client.Check{Key: "k",
			Rules: rules}})
		if !errors.Is(err, client.ErrInvalid) {
			t.Errorf("rules %q: %v", rules, err)
		}
	}
	if _, err := c.Acquire(t.Context(), client.AcquireRequest{Check: client.Check{
		Rules: []string{"login"}}, Checks: []client.Check{check}}); !errors.Is(err,
		client.ErrInvalid) {
		t.Errorf("rules beside checks: %v", err)
	}
}

// TestRulesInABatch: many short names may stand for many more limits, and one that is not UTF-8 is
// refused alone.
func TestRulesInABatch(t *testing.T) {
	c := newBed(t, 1).client()
	bad := client.Op{Add: &client.AddRequest{Key: "k", Rules: []string{"\xff"}}}
	ops := slices.Repeat([]client.Op{{Acquire: &client.AcquireRequest{Check: client.Check{Key: "k",
		Rules: slices.Repeat([]string{"many"}, 16)}}}}, 20)
	results, err := c.Batch(t.Context(), append(ops, bad))
	must.Succeed(t, err)
	for i := range ops {
		must.Succeed(t, results[i].Err)
		if n := len(results[i].Acquire.Limits); n != 16*16 {
			t.Fatalf("%d limits are answered", n)
		}
	}
	if err := results[len(ops)].Err; !errors.Is(err, client.ErrInvalid) {
		t.Errorf("a name that is not UTF-8: %v", err)
	}
}

// TestDefaultRules: an operation that names neither limits nor rules is answered with all limits of
// the default rules of its namespace.
func TestDefaultRules(t *testing.T) {
	c := newBed(t, 1).client()
	check := func(key string) client.Check { return client.Check{Namespace: "usual", Key: key} }
	for i := range 4 {
		a, err := c.Acquire(t.Context(), client.AcquireRequest{Check: check("k")})
		must.Succeed(t, err)
		if len(a.Limits) != 16*16 || a.Allowed != (i < 3) || a.Limits[255].Rule != "usual15" ||
			a.Limits[255].Refused != (i == 3) {
			t.Fatalf("%d: allowed %v by %d limits", i, a.Allowed, len(a.Limits))
		}
	}
	two := client.AcquireRequest{Checks: []client.Check{check("a"), check("b")}}
	results, err := c.Batch(t.Context(), slices.Repeat([]client.Op{{Acquire: &two}}, 20))
	must.Succeed(t, err)
	for i := range results {
		must.Succeed(t, results[i].Err)
		for _, one := range results[i].Acquire.Checks {
			if len(one.Limits) != 16*16 || one.Allowed != (i < 3) {
				t.Errorf("%d: allowed %v by %d limits", i, one.Allowed, len(one.Limits))
			}
		}
	}
}

// TestRulesAndOwners: with the namespace of its rules an operation goes to the owner of its key,
// without a namespace to any node.
func TestRulesAndOwners(t *testing.T) {
	c := newBed(t, 3).client()
	ops := func(ns string) (list []client.Op) {
		for _, key := range strings.Split("abcdefghijklmnop", "") {
			check := client.Check{Namespace: ns, Key: key, Rules: []string{"pair"}}
			list = append(list, client.Op{Acquire: &client.AcquireRequest{Check: check}},
				client.Op{Acquire: &client.AcquireRequest{Checks: []client.Check{check}}},
				client.Op{Add: &client.AddRequest{Namespace: ns, Key: key, Rules: check.Rules}})
		}
		return list
	}
	for ns, direct := range map[string]int64{"other": 48, "": 0} {
		before := c.Stats().Direct
		results, err := c.Batch(t.Context(), ops(ns))
		must.Succeed(t, err)
		for i := range results {
			must.Succeed(t, results[i].Err)
		}
		if got := c.Stats().Direct - before; got != direct {
			t.Errorf("namespace %q: %d of %d went to owners, want %d", ns, got, len(results),
				direct)
		}
	}
}

// TestSettleInTheNamespaceOfARule reserves by a rule that counts in another namespace.
func TestSettleInTheNamespaceOfARule(t *testing.T) {
	c := newBed(t, 3).client()
	r, a, err := c.Reserve(t.Context(), client.AcquireRequest{Check: client.Check{Key: "k", N: 3,
		Rules: []string{"pair"}}})
	must.Succeed(t, err)
	if r == nil {
		t.Fatalf("refused: %+v", a)
	}
	must.Succeed(t, r.Settle(t.Context(), 1))
	for ns, want := range map[string]int64{"other": 1, "": 0} {
		a, err := c.Count(t.Context(), client.CountRequest{Namespace: ns, Key: "k",
			Windows: []time.Duration{time.Hour}})
		must.Succeed(t, err)
		if got := a.Counts[0].Max; got != want {
			t.Errorf("namespace %q: %d, want %d", ns, got, want)
		}
	}
}

// TestGateByRules names rules in place of limits, for all requests and for one check. Headers name
// the rule, and leave out rules that refuse nothing.
func TestGateByRules(t *testing.T) {
	c := newBed(t, 1).client()
	byRule := func(rules ...string) *client.Gate {
		return gate(t, c, func(o *client.GateOptions) { o.Limits, o.Rules = nil, rules })
	}
	var next served
	for i, status := range []int{200, 200, 200, 429} {
		resp := visit(t.Context(), byRule("login"), &next, "ann")
		if resp.StatusCode != status || resp.Header.Get("RateLimit-Policy") != `"login";q=3;w=60` ||
			!strings.HasPrefix(resp.Header.Get("RateLimit"), `"login";r=`) {
			t.Errorf("request %d: %d, %v", i, resp.StatusCode, resp.Header)
		}
	}
	for _, tt := range []struct {
		rules, policy string
		status        int
	}{
		{"pair watched idle", `"pair/1m";q=3;w=60, "pair/18h";q=5;w=64800`, 200},
		{"watched", "", 200},
		{"idle", "", 200},
		{"none", "", 500},
	} {
		resp := visit(t.Context(), byRule(strings.Fields(tt.rules)...), &next, tt.rules)
		if got := resp.Header.Get("RateLimit-Policy"); resp.StatusCode != tt.status ||
			got != tt.policy {
			t.Errorf("%s: %d, policy %s, want %d, %s", tt.rules, resp.StatusCode, got, tt.status,
				tt.policy)
		}
	}
	// One check has a rule of another namespace than the gate's, the other the gate's options.
	both := gate(t, c, func(o *client.GateOptions) { o.Namespace = "default" })
	w := httptest.NewRecorder()
	both.HandlerOf(func(*http.Request) []client.Check {
		return []client.Check{{Key: "both", Rules: []string{"pair"}}, {Key: "both"}}
	}, &next).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if got := w.Header().Get("RateLimit"); w.Code != 200 || got != `"checks[0].pair/1m";r=2, `+
		`"checks[0].pair/18h";r=4, "checks[1].limits[0]";r=2` {
		t.Errorf("two checks: %d, %s", w.Code, got)
	}
	var ctx fasthttp.RequestCtx
	both.FastHandlerOf(func(*fasthttp.RequestCtx) []client.Check {
		return []client.Check{{Key: "fast", Rules: []string{"pair"}}, {Key: "fast", N: 4}}
	}, func(*fasthttp.RequestCtx) { t.Error("four of three have passed") })(&ctx)
	if got := string(ctx.Response.Header.Peek("RateLimit")); ctx.Response.StatusCode() != 429 ||
		got != `"checks[0].pair/1m";r=3, "checks[0].pair/18h";r=5, "checks[1].limits[0]";r=3` {
		t.Errorf("two checks of fasthttp: %d, %s", ctx.Response.StatusCode(), got)
	}
}

// TestMessageControl sends messages under the rules of deploy/message-control, by their names. A
// message that one of the four refuses is counted under none.
func TestMessageControl(t *testing.T) {
	c := newBed(t, 3).client()
	g := gate(t, c, func(o *client.GateOptions) { o.Namespace = "sms" })
	var next served
	send := func(to, text string) string {
		w := httptest.NewRecorder()
		g.HandlerOf(func(*http.Request) []client.Check {
			return []client.Check{{Key: to, Rules: []string{"sms-receiver"}},
				{Key: to + ":" + text, Rules: []string{"sms-content"}}}
		}, &next).ServeHTTP(w, httptest.NewRequest("POST", "/", nil))
		return strconv.Itoa(w.Code) + " " + w.Header().Get("RateLimit")
	}
	for i := range 15 {
		if got := send("ann", strconv.Itoa(i/2)); !strings.HasPrefix(got, "200 ") {
			t.Errorf("message %d: %s", i, got)
		}
	}
	for content, want := range map[string]string{"0": `"checks[1].sms-content/59s";r=0;t=`,
		"new": `"checks[0].sms-receiver/1m";r=0;t=`} {
		if got := send("ann", content); !strings.HasPrefix(got, "429 ") ||
			!strings.Contains(got, want) {
			t.Errorf("content %s: %s", content, got)
		}
	}
	if got := send("bob", "0"); got != `200 "checks[0].sms-receiver/1m";r=14, `+
		`"checks[0].sms-receiver/24h";r=49, "checks[1].sms-content/59s";r=1, `+
		`"checks[1].sms-content/59m";r=4` {
		t.Errorf("another receiver: %s", got)
	}
	a, err := c.Count(t.Context(), client.CountRequest{Namespace: "sms", Key: "ann",
		Windows: []time.Duration{24 * time.Hour}})
	must.Succeed(t, err)
	if next.Load() != 16 || a.Counts[0].Max != 15 {
		t.Errorf("%d passed, %d are counted for ann", next.Load(), a.Counts[0].Max)
	}
}

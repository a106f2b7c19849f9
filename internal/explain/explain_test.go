package explain_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/explain"
	"twotier.dev/twotier/internal/holds"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/storeclock"
	"twotier.dev/twotier/internal/testing/embedded"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/verdicts"
	"twotier.dev/twotier/syncer"
)

// bed is a node that counts in memory, with a clock that the test moves, and its explainer.
type bed struct {
	t         *testing.T
	now       atomic.Int64 // unix milliseconds
	node      *node.Node
	explainer explain.Explainer
	history   *verdicts.History
	request   ask.Request
}

// rulesOf has a set of rules.
type rulesOf struct{ set *twotier.RuleSet }

func (r rulesOf) Rules() *twotier.RuleSet { return r.set }

// steady is a store whose clock agrees with the test's.
type steady struct{}

func (steady) ClockAhead(context.Context, func() time.Time) (time.Duration, error) { return 0, nil }

func (steady) Health() cluster.StoreHealth { return cluster.StoreHealth{Up: true} }

func newBed(t *testing.T, rules []twotier.Rule) *bed {
	t.Helper()
	b := &bed{t: t}
	const start = 1_767_225_600_000
	b.now.Store(start)
	wall := func() time.Time { return time.UnixMilli(b.now.Load()) }
	clock := storeclock.New(wall, func() time.Duration {
		return time.Duration(b.now.Load()-start) * time.Millisecond
	})
	place := twotier.Placement{Partitions: 8}
	opt := node.Options{ID: "n1", Store: steady{}, Placement: place, Clock: clock,
		ClockInterval: time.Hour}
	var err error
	opt.Counter, err = syncer.New(syncer.Options{Now: clock.Now, Placement: place,
		Store: embedded.New(embedded.Options{Now: wall})})
	must.Succeed(t, err)
	b.node, err = node.New(opt)
	must.Succeed(t, err)
	must.Succeed(t, b.node.Open(t.Context(), ""))
	t.Cleanup(func() { must.Succeed(t, b.node.Close(context.Background())) })
	set := rulesOf{twotier.NewRuleSet(rules).Numbered(7)}
	b.explainer = explain.Explainer{Service: b.node, Refusals: b.node, Rules: set}
	b.history = verdicts.NewHistory(b.node.Verdicts(), b.node, clock.Now)
	secret := &ask.Holds{Now: clock.Now, Tally: holds.Tally{Now: clock.Now}}
	secret.Sealer.SetSecret([]byte("secret"))
	b.request = ask.Request{Rules: set, Holds: secret}
	return b
}

// step is an acquire.
type step struct {
	key    string
	n      int64
	rules  []string
	limits []twotier.Limit
	hold   int64
	dryRun bool
}

// acquire executes an acquire as an endpoint does, and returns its result and the id of its
// refusal.
func (b *bed) acquire(s step) (*twotier.Result, decisions.RefusalID) {
	b.t.Helper()
	r := &b.request
	r.Reset()
	r.BeginOp()
	fail := func(f *request.Failure) {
		b.t.Helper()
		if f != nil {
			b.t.Fatalf("%+v: %s: %s", s, f.Field, f.Detail)
		}
	}
	for _, l := range s.limits {
		r.AddLimit(l, []byte("text"))
	}
	for _, name := range s.rules {
		fail(r.AddNamedRule([]byte(name)))
	}
	c := twotier.Check{Key: []byte(s.key), N: s.n}
	_, _, f := r.PrepareCheck(&c, twotier.Acquire)
	fail(f)
	r.EndCheck(&c, twotier.Acquire)
	op := twotier.Op{Kind: twotier.Acquire, Hold: s.hold, DryRun: s.dryRun}
	if r.NeedsHold(&op) {
		fail(r.CheckHold(&op))
	}
	r.EndOp(&op, 0)
	return b.do()
}

// addValues adds values to a key, judged by a rule.
func (b *bed) addValues(key, rule string, values ...string) (*twotier.Result, decisions.RefusalID) {
	b.t.Helper()
	var add [][]byte
	for _, value := range values {
		add = append(add, []byte(value))
	}
	r := &b.request
	r.Reset()
	r.BeginOp()
	r.AddValues(add)
	f := r.AddNamedRule([]byte(rule))
	if f == nil {
		f = r.EndDistinct(new(twotier.Op), &twotier.Check{Key: []byte(key)}, 0)
	}
	if f != nil {
		b.t.Fatal(f)
	}
	return b.do()
}

// do executes the only operation of the request, and returns its result and the id of its refusal.
func (b *bed) do() (*twotier.Result, decisions.RefusalID) {
	b.t.Helper()
	r := &b.request
	r.Link()
	results := r.EmptyResults()
	must.Succeed(b.t, b.node.Do(b.t.Context(), &r.Ops[0], &results[0]))
	r.CountVerdicts(b.node.Verdicts(),
		&verdicts.Arrival{Endpoint: verdicts.HTTP, Began: time.Now()})
	res := results[0] // the next request reuses the results
	return &res, r.RefusalOf(0)
}

// explain explains a key, or the refusal with an id.
func (b *bed) explain(q explain.Query) *explain.Explanation {
	b.t.Helper()
	plan, f := b.explainer.Plan(b.t.Context(), &q)
	var text []byte
	if f == nil {
		text, f = plan.Append(b.t.Context(), nil, 1<<20)
	}
	if f != nil {
		b.t.Fatalf("%+v: %s", q, f.Detail)
	}
	a := new(explain.Explanation)
	must.Succeed(b.t, json.Unmarshal(text, a))
	return a
}

// TestRefusalsOfARule: an explanation of one rule lists its refusals, and no others, however many
// there are.
func TestRefusalsOfARule(t *testing.T) {
	hourly := []twotier.RuleLimit{{Window: 3_600_000, Text: "1h"}}
	b := newBed(t, []twotier.Rule{{Name: "login", Limits: hourly},
		{Name: "search", Limits: hourly}})
	b.acquire(step{key: "k", n: 1, rules: []string{"login"}})
	for range 25 {
		b.now.Add(60_000)
		b.acquire(step{key: "k", n: 1, rules: []string{"search"}})
	}
	for rule, want := range map[string]int{"login": 1, "search": 20} {
		list := b.explain(explain.Query{Key: []byte("k"), Rule: rule}).Refusals
		if len(list) != want || list[0].Rule != rule {
			t.Errorf("%s: %d refusals: %+v", rule, len(list), list)
		}
	}
	if list := b.explain(explain.Query{Key: []byte("k")}).Refusals; len(list) != 20 {
		t.Errorf("of all rules: %d refusals", len(list))
	}
}

// TestValuesPassForOneNewValue: the time at which one new value passes does not depend on the sizes
// of other requests.
func TestValuesPassForOneNewValue(t *testing.T) {
	b := newBed(t, []twotier.Rule{{Name: "devices", Distinct: []twotier.RuleLimit{
		{Window: 60_000, Max: 3, Text: "1m"}}}})
	for _, value := range []string{"a", "b", "c"} {
		b.addValues("k", "devices", value)
		b.now.Add(10_000)
	}
	passesAt := func() int64 {
		t.Helper()
		r := b.explain(explain.Query{Key: []byte("k"), Rule: "devices"}).Rules[0]
		if r.Passes {
			t.Errorf("%+v", r)
		}
		return r.PassesAt
	}
	several, _ := b.addValues("k", "devices", "d", "e")
	if at := passesAt(); several.RetryAfter <= 0 || at != 0 {
		t.Errorf("passes at %d, known from two values", at)
	}
	one, _ := b.addValues("k", "devices", "d")
	want := b.now.Load() + one.RetryAfter
	if one.RetryAfter <= 0 || one.RetryAfter >= several.RetryAfter {
		t.Errorf("two values wait %d, one %d", several.RetryAfter, one.RetryAfter)
	}
	b.now.Add(1)
	b.addValues("k", "devices", "d", "e")
	if at := passesAt(); at != want {
		t.Errorf("passes at %d, want %d", at, want)
	}
}

// TestBucketsEndWithTheWindow: events from before the window are in none of its buckets.
func TestBucketsEndWithTheWindow(t *testing.T) {
	b := newBed(t, []twotier.Rule{{Name: "hourly", Limits: []twotier.RuleLimit{
		{Window: 3_600_000, Max: 5, Text: "1h"}}}})
	b.acquire(step{key: "k", n: 4, rules: []string{"hourly"}})
	b.now.Add(3_620_000)
	res, _ := b.acquire(step{key: "k", n: 5, rules: []string{"hourly"}})
	if !res.Allowed {
		must.Succeed(t, res.Err)
		t.Fatalf("%+v", res)
	}
	w := b.explain(explain.Query{Key: []byte("k")}).Rules[0].Windows[0]
	if len(w.Buckets) != 1 || w.Buckets[0].Count != 5 {
		t.Errorf("%+v", w)
	}
}

// TestShadowThatNoRequestNames has rules of each kind in shadow that would refuse a key. They are
// unasked until a request names them, and again a day later.
func TestShadowThatNoRequestNames(t *testing.T) {
	one := []twotier.RuleLimit{{Window: 3_600_000 * 25, Max: 1, Text: "25h"}}
	b := newBed(t, []twotier.Rule{
		{Name: "events", Limits: one, State: twotier.RuleShadow},
		{Name: "near", Limits: one, State: twotier.RuleShadow, Warn: 50},
		{Name: "values", Distinct: one, State: twotier.RuleShadow},
		{Name: "on", Limits: one},
	})
	unasked := func(want ...string) {
		t.Helper()
		b.history.Record()
		var got []string
		for _, r := range b.explain(explain.Query{Key: []byte("k")}).Rules {
			if r.WouldRefuse != (r.State == "shadow") {
				t.Errorf("%s would refuse: %v", r.Rule, r.WouldRefuse)
			}
			if r.Unasked {
				got = append(got, r.Rule)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("unasked are %v, want %v", got, want)
		}
	}
	limits := []twotier.Limit{{Window: 60_000, Max: 9}}
	b.acquire(step{key: "k", n: 2, limits: limits}) // as an application that names no rule
	b.addValues("k", "values", "a", "b")            // this rule is asked for
	unasked("events", "near")
	b.acquire(step{key: "k", n: 1, rules: []string{"events"}})
	unasked("near")
	b.acquire(step{key: "other", n: 1, rules: []string{"near"}})
	unasked()
	b.now.Add(3_600_000*24 + 1000)
	b.acquire(step{key: "k", n: 2, limits: limits})
	b.acquire(step{key: "k", n: 1, rules: []string{"events"}, dryRun: true}) // does not count
	b.addValues("k", "values", "c", "d")
	unasked("events", "near")
}

// manyRules returns rules with long names, limits of every kind, and more of them than are judged
// in one step.
func manyRules() (rules []twotier.Rule) {
	for i := range 200 {
		r := twotier.Rule{Name: fmt.Sprintf("%s%d", strings.Repeat("r", 60), i),
			Concurrent: 1 << 50, Ban: 3_600_000}
		for j := range int64(1 + i%16) {
			r.Limits = append(r.Limits, twotier.RuleLimit{Window: 60_000 * (1 + j), Max: 1 << 50,
				Text: fmt.Sprint(1+j, "m")})
		}
		if i%50 == 0 {
			r.Distinct = []twotier.RuleLimit{{Window: 60_000, Max: 1 << 50, Text: "1m"}}
		}
		rules = append(rules, r)
	}
	return rules
}

// TestAnswersFitInTheirPlans: an answer takes no more than its plan states before it is built,
// however many rules, refusals and buckets it has.
func TestAnswersFitInTheirPlans(t *testing.T) {
	b := newBed(t, append(manyRules(), twotier.Rule{Name: "tight",
		Limits: []twotier.RuleLimit{{Window: 60_000, Text: "1m"}}}))
	key := strings.Repeat("k", 250)
	for range 25 {
		b.acquire(step{key: key, n: 1 << 30, rules: []string{manyRules()[0].Name}, hold: 90_000})
		b.acquire(step{key: key, n: 1, rules: []string{"tight"}})
		b.now.Add(20_000)
	}
	for _, rule := range []string{"", "tight", manyRules()[199].Name} {
		q := explain.Query{Key: []byte(key), Rule: rule}
		plan, f := b.explainer.Plan(t.Context(), &q)
		if f != nil {
			t.Fatal(f)
		}
		text, f := plan.Append(t.Context(), nil, 1<<30)
		if f != nil {
			t.Fatal(f)
		}
		if n := int64(len(text)); n > plan.Bytes() || rule == "" && n < plan.Bytes()/8 {
			t.Errorf("rule %q: %d bytes, planned %d", rule, n, plan.Bytes())
		}
	}
}

// TestTooLongAnswersAreRefused: an answer that is longer than it may be ends within a step.
func TestTooLongAnswersAreRefused(t *testing.T) {
	b := newBed(t, manyRules())
	plan, f := b.explainer.Plan(t.Context(), &explain.Query{Key: []byte("k")})
	if f != nil {
		t.Fatal(f)
	}
	text, f := plan.Append(t.Context(), nil, 10<<10)
	if f == nil || f.Field != "rule" || int64(len(text)) > plan.Bytes()/2 {
		t.Errorf("%d bytes, %v", len(text), f)
	}
}

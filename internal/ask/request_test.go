package ask_test

import (
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/ask"
	"twotier.dev/twotier/internal/request"
	"twotier.dev/twotier/internal/testing/must"
)

// rules is a fixed set of rules.
type rules struct{ set *twotier.RuleSet }

func (r rules) Rules() *twotier.RuleSet { return r.set }

func newRules() rules {
	minute := []twotier.RuleLimit{{Window: 60_000, Max: 3, Text: "1m"}}
	return rules{twotier.NewRuleSet([]twotier.Rule{
		{Name: "login", Limits: minute, Ban: 1000},
		{Name: "sms", Namespace: "sms", Default: true, Limits: append(minute,
			twotier.RuleLimit{Window: 3_600_000, Max: 9, Text: "1h"})},
	})}
}

// TestRulesCharge checks which operations count in any case, and which count nothing.
func TestRulesCharge(t *testing.T) {
	minute := []twotier.RuleLimit{{Window: 60_000, Max: 3, Text: "1m"}}
	r := ask.Request{Rules: rules{twotier.NewRuleSet([]twotier.Rule{
		{Name: "plain", Limits: minute}, {Name: "tokens", Limits: minute, Charge: true},
		{Name: "shadow", Limits: minute, Charge: true, State: twotier.RuleShadow},
	})}}
	nothing := check("k")
	nothing.N = 0
	for _, f := range []*request.Failure{add(&r, check("k"), 0, "plain", "tokens"),
		add(&r, check("k"), 0, "plain"), add(&r, check("k"), 0, "shadow"),
		add(&r, nothing, 0, "tokens")} {
		if f != nil {
			t.Fatal(f)
		}
	}
	r.Link()
	for i, want := range [][2]bool{{true, false}, {}, {}, {true, true}} {
		if op := &r.Ops[i]; op.Charge != want[0] || op.DryRun != want[1] {
			t.Errorf("operation %d: charge %v, dry run %v", i, op.Charge, op.DryRun)
		}
	}
}

// second is the text of the windows that requests spell out.
var second = []byte("1s")

// add adds an acquire of one check.
func add(r *ask.Request, c *twotier.Check, own int, names ...string) *request.Failure {
	r.BeginOp()
	for range own {
		r.AddLimit(twotier.Limit{Window: 1000, Max: 1}, second)
	}
	for _, name := range names {
		if f := r.AddNamedRule([]byte(name)); f != nil {
			r.DropOp()
			return f
		}
	}
	if _, _, f := r.PrepareCheck(c, twotier.Acquire); f != nil {
		r.DropOp()
		return f
	}
	r.EndCheck(c, twotier.Acquire)
	r.EndOp(&twotier.Op{Kind: twotier.Acquire}, 0)
	return nil
}

func check(key string) *twotier.Check { return &twotier.Check{Key: []byte(key), N: 1} }

// TestRequest assembles operations with limits of their own, of named and of default rules, and one
// that is refused in between.
func TestRequest(t *testing.T) {
	var r ask.Request
	r.Rules = newRules()
	for range 2 { // a request is reused
		r.Reset()
		sms := check("b")
		sms.NS = []byte("sms")
		for _, f := range []*request.Failure{add(&r, check("a"), 2, "login"), add(&r, sms, 0),
			add(&r, check("c"), 1)} {
			if f != nil {
				t.Fatal(f)
			}
		}
		if f := add(&r, check("d"), 5, "login", "sms"); f == nil || f.Kind != request.Invalid {
			t.Fatalf("rules of two namespaces in one check: %v", f)
		}
		r.Link()
		for i, want := range []struct{ limits, bans int }{{3, 1}, {2, 0}, {1, 0}} {
			op := &r.Ops[i]
			if len(op.Checks) != 1 || len(op.Checks[0].Limits) != want.limits ||
				len(op.Rules) != want.bans {
				t.Errorf("operation %d: %+v", i, op)
			}
			if r.IsRuled(i) != (i < 2) {
				t.Errorf("operation %d: ruled is %v", i, r.IsRuled(i))
			}
		}
		if l := r.RuleOf(0, 0, 2); l == nil || l.Policy() != "login" || r.RuleOf(0, 0, 1) != nil {
			t.Errorf("limit 2 comes from %v", l)
		}
		if text := r.RuleOf(1, 0, 1).Limit().Text; text != "1h" {
			t.Errorf("limit 1 of operation 1 has the window %s", text)
		}
		if text := string(r.WindowText(2, 0, 0)); text != "1s" {
			t.Errorf("limit 0 of operation 2 has the window %s", text)
		}
		if results := r.EmptyResults(); len(results) != len(r.Ops) {
			t.Errorf("%d results for %d operations", len(results), len(r.Ops))
		}
	}
}

// TestRefusals lists the failures of checks.
func TestRefusals(t *testing.T) {
	reader, err := twotier.NewGrant("reader", "read", "")
	must.Succeed(t, err)
	for _, tt := range []struct {
		check twotier.Check
		own   int
		names []string
		grant *twotier.Grant
		field string
	}{
		{check: *check("a"), field: "limits"},
		{check: twotier.Check{Key: []byte("a"), N: -1}, own: 1, field: "n"},
		{check: twotier.Check{N: 1}, own: 1, field: "key"},
		{check: twotier.Check{Key: []byte("a"), NS: []byte("x"), N: 1}, names: []string{"login"},
			field: "ns"},
		{check: *check("a"), own: 1, grant: reader, field: "op"},
	} {
		r := ask.Request{Rules: newRules(), Grant: tt.grant}
		f := add(&r, &tt.check, tt.own, tt.names...)
		if f == nil || f.Field != tt.field ||
			(f.Kind == request.Forbidden) != (tt.grant != nil) {
			t.Errorf("%+v: %+v, want a failure of %s", tt.check, f, tt.field)
		}
	}
	r := ask.Request{Rules: rules{}}
	if f := r.AddNamedRule([]byte("login")); f == nil || f.Kind != request.Unavailable {
		t.Errorf("a name before the rules are known: %v", f)
	}
}

// TestPrepareCheckAddsNothing compares what PrepareCheck reports with what EndCheck adds.
func TestPrepareCheckAddsNothing(t *testing.T) {
	r := ask.Request{Rules: newRules()}
	r.BeginOp()
	if f := r.AddNamedRule([]byte("login")); f != nil {
		t.Fatal(f)
	}
	c := check("a")
	limits, bans, f := r.PrepareCheck(c, twotier.Acquire)
	if limits != 1 || bans != 1 || f != nil || r.LimitCount() != 0 || r.CheckCount() != 0 {
		t.Errorf("%d limits, %d bans, %v; %d limits and %d checks are there", limits, bans, f,
			r.LimitCount(), r.CheckCount())
	}
	r.EndCheck(c, twotier.Acquire)
	if r.LimitCount() != 1 || r.OpRuledCount() != 1 || r.CheckCount() != 1 {
		t.Errorf("then %d limits and %d checks", r.LimitCount(), r.CheckCount())
	}
}

// TestRequestAllocatesNothing checks that assembling an acquire, plain or with rules, allocates
// nothing.
func TestRequestAllocatesNothing(t *testing.T) {
	r := ask.Request{Rules: newRules()}
	c := check("a")
	c.NS = []byte("sms")
	for _, own := range []int{1, 0} {
		if n := testing.AllocsPerRun(100, func() {
			r.Reset()
			if f := add(&r, c, own); f != nil {
				t.Error(f)
			}
			r.Link()
			r.EmptyResults()
		}); n > 0 {
			t.Errorf("%v allocations with %d limits in the request", n, own)
		}
	}
	name, nothing := []byte("login"), check("b")
	nothing.N = 0
	if n := testing.AllocsPerRun(100, func() {
		r.Reset()
		r.BeginOp()
		for _, c := range []*twotier.Check{c, nothing} {
			c.NS = nil
			if f := r.AddNamedRule(name); f != nil {
				t.Error(f)
			}
			if _, _, f := r.PrepareCheck(c, twotier.Acquire); f != nil {
				t.Error(f)
			}
			r.EndCheck(c, twotier.Acquire)
			r.BeginCheck()
		}
		r.EndOp(&acquire, 0)
		r.Link()
		r.EmptyResults()
	}); n > 0 {
		t.Errorf("%v allocations with a named rule", n)
	}
}

var acquire = twotier.Op{Kind: twotier.Acquire}

package twotier_test

import (
	"fmt"
	"strings"
	"testing"

	"twotier.dev/twotier"
)

func TestStates(t *testing.T) {
	r := twotier.Rule{Name: "r", Limits: []twotier.RuleLimit{{Window: 1000, Max: 5, Text: "1s"}}}
	for text, want := range map[string]int64{"on": 5, "shadow": twotier.Unlimited,
		"off": twotier.Unlimited} {
		var err error
		if r.State, err = twotier.ParseRuleState(text); err != nil || r.State.String() != text {
			t.Errorf("%s: %v, %v", text, r.State, err)
		}
		if got := r.Enforced(r.Limits[0]); got != want {
			t.Errorf("%s: decides with %d, want %d", text, got, want)
		}
	}
	if _, err := twotier.ParseRuleState("none"); err == nil {
		t.Error("there is a state none")
	}
}

func TestPolicyName(t *testing.T) {
	one := twotier.Rule{Name: "r", Limits: []twotier.RuleLimit{{Text: "1s"}}}
	two := twotier.Rule{Name: "r", Limits: []twotier.RuleLimit{{Text: "1s"}, {Text: "1m"}}}
	if got := one.PolicyName(one.Limits, 0) + " " + two.PolicyName(two.Limits, 1); got != "r r/1m" {
		t.Errorf("names %s", got)
	}
}

func TestSet(t *testing.T) {
	s := twotier.NewRuleSet([]twotier.Rule{{Name: "b"}, {Name: "a"}, {Name: "b",
		Namespace: "second"}})
	if got := fmt.Sprint(s.Names()); got != "[a b]" {
		t.Errorf("names %s", got)
	}
	if r := s.Find([]byte("b")); r == nil || r.Namespace != "" {
		t.Errorf("found %+v, want the first", r)
	}
	if r := s.Find([]byte("c")); r != nil {
		t.Errorf("found %+v", r)
	}
}

// TestOverrides looks up limits on events and on values, which overrides replace independently.
func TestOverrides(t *testing.T) {
	limits := func(text string) []twotier.RuleLimit { return []twotier.RuleLimit{{Text: text}} }
	set := twotier.NewRuleSet([]twotier.Rule{{Name: "r", Limits: limits("own"),
		Distinct: limits("few"),
		Overrides: []twotier.Override{{Prefix: "corp-", Limits: limits("corp")},
			{Prefix: "corp-vip-", Distinct: limits("many")},
			{Prefix: "corp-vip-gold-", Limits: limits("gold")},
			{Key: "corp-1", Limits: limits("one"), Distinct: limits("two")}}}})
	r := set.Find([]byte("r"))
	for key, want := range map[string]string{"": "own few", "x": "own few", "corp": "own few",
		"corp-": "corp few", "corp-12": "corp few", "corp-vip-": "corp many",
		"corp-vip-7": "corp many", "corp-vip-gold-7": "gold many", "corp-1": "one two"} {
		got := r.For([]byte(key))[0].Text + " " + r.DistinctFor([]byte(key))[0].Text
		if got != want {
			t.Errorf("%q: %s, want %s", key, got, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { r.For([]byte("corp-vip-1")) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	plain := twotier.Rule{Distinct: limits("few")}
	if plain.For(nil) != nil || plain.DistinctFor(nil)[0].Text != "few" {
		t.Errorf("without overrides: %+v", plain)
	}
}

func TestDefaults(t *testing.T) {
	some := []twotier.RuleLimit{{Text: "1m"}}
	set := twotier.NewRuleSet([]twotier.Rule{
		{Name: "a", Default: true, Limits: some},
		{Name: "b", Namespace: "sms", Default: true, Limits: some, Distinct: some},
		{Name: "c", Default: true, State: twotier.RuleShadow, Limits: some},
		{Name: "d", Limits: some, Distinct: some},
		{Name: "e", Default: true, Distinct: some}}).Numbered(3)
	names := func(rules []*twotier.Rule) string {
		var all []string
		for _, r := range rules {
			all = append(all, r.Name)
		}
		return strings.Join(all, " ")
	}
	for ns, want := range map[string]string{"": "a c; e", "default": "a c; e", "sms": "b; b",
		"x": "; "} {
		got := names(set.Defaults([]byte(ns))) + "; " + names(set.DistinctDefaults([]byte(ns)))
		if got != want {
			t.Errorf("namespace %q: %s, want %s", ns, got, want)
		}
	}
	var none *twotier.RuleSet
	if len(none.Defaults(nil))+len(none.DistinctDefaults(nil)) > 0 {
		t.Error("no rules, but defaults")
	}
}

// TestNeededBeyond lists how many events an acquire needed in addition to the counts in its result,
// which include its events if they were counted.
func TestNeededBeyond(t *testing.T) {
	banned := twotier.Result{Bans: []twotier.BanResult{{Rule: "r"}}}
	started := twotier.Result{Bans: []twotier.BanResult{{Rule: "r", Started: true}}}
	for _, tt := range []struct {
		op   twotier.Op
		n    int64
		res  twotier.Result
		want int64
	}{
		{n: 3, res: twotier.Result{Allowed: true}},
		{n: 3, want: 3},
		{n: 0, res: twotier.Result{Allowed: true}, want: 1},
		{n: 0, want: 1},
		{op: twotier.Op{Charge: true}, n: 3},
		{op: twotier.Op{Charge: true}, n: 3, res: banned},
		{op: twotier.Op{CountDenied: true}, n: 3},
		{op: twotier.Op{CountDenied: true}, n: 3, res: started},
		{op: twotier.Op{CountDenied: true}, n: 3, res: banned, want: 3},
	} {
		tt.op.Kind, tt.op.Checks = twotier.Acquire, []twotier.Check{{N: tt.n}}
		if got := tt.op.NeededBeyond(0, &tt.res); got != tt.want {
			t.Errorf("%+v with %+v: %d, want %d", tt.op, tt.res, got, tt.want)
		}
	}
}

// TestIsNear checks at which count a warning level is reached: a percentage of the limit, rounded
// up.
func TestIsNear(t *testing.T) {
	for _, tt := range []struct{ warn, most, from int64 }{
		{80, 15, 12}, {80, 14, 12}, {1, 1, 1}, {1, 101, 2}, {100, 7, 7}, {50, 3, 2},
		{99, twotier.Unlimited - 1, 8_917_127_262_193_582},
	} {
		r := twotier.Rule{Warn: tt.warn}
		if r.IsNear(tt.from-1, tt.most) || !r.IsNear(tt.from, tt.most) {
			t.Errorf("%d%% of %d is not reached with %d", tt.warn, tt.most, tt.from)
		}
	}
	if r := new(twotier.Rule); r.IsNear(9, 9) {
		t.Error("a rule without a warning level warns")
	}
}

package resp_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/resp"
	"twotier.dev/twotier/internal/verdicts"
)

// namedRules are the rules of the tests.
type namedRules struct{ set *twotier.RuleSet }

func (n namedRules) Rules() *twotier.RuleSet { return n.set }

func newRules() namedRules {
	limits := func(most ...int64) (all []twotier.RuleLimit) {
		for i, m := range most {
			all = append(all, twotier.RuleLimit{Window: int64(i+1) * 60_000, Max: m,
				Text: fmt.Sprint(i+1, "m")})
		}
		return all
	}
	var many []int64
	for range 16 {
		many = append(many, 9)
	}
	return namedRules{twotier.NewRuleSet([]twotier.Rule{
		{Name: "two", Limits: limits(2, 9)}, {Name: "off", Limits: limits(0),
			State: twotier.RuleOff},
		{Name: "shadow", Limits: limits(1), State: twotier.RuleShadow},
		{Name: "sms", Namespace: "sms", Default: true, Limits: limits(3),
			Overrides: []twotier.Override{{Prefix: "vip", Limits: limits(7, 8)}}},
		{Name: "many", Limits: limits(many...)},
	})}
}

func TestRules(t *testing.T) {
	c := dial(t, serve(t, resp.Options{Service: newService(t), Rules: newRules()}))
	for _, step := range []struct{ command, want string }{
		{"TT.ACQUIRE a RULE two", "[1 0 1 1 1 8]"},
		{"TT.ACQUIRE a RULE two LIMIT 1h 5", "[1 0 2 3 2 0 2 7]"},
		{"TT.ACQUIRE b RULE off RULE shadow", "[1 0 1 0]"},
		{"TT.ACQUIRE b RULE off RULE shadow", "[1 0 2 0]"},
		{"TT.ACQUIRE c RULE sms", "[1 0 1 2]"},
		{"TT.ACQUIRE c NS sms", "[1 0 2 1]"},
		{"TT.ACQUIRE c NS sms LIMIT 1m 10", "[1 0 3 7]"},
		{"TT.ACQUIRE vip1 NS sms", "[1 0 1 6 1 7]"},
		{"TT.COUNT c 1m NS sms", "[3]"},
		{"TT.ACQUIRE d RULE two KEY vip2 RULE sms", "[1 0 1 1 1 8 1 6 1 7]"},
		{"TT.ACQUIRE a", "-ERR limits: missing; want at least one LIMIT or RULE"},
		{"TT.ACQUIRE a RULE", "-ERR rules: want RULE and a name"},
		{"TT.ACQUIRE a RULE nobody", `-ERR rules: there is no rule "nobody"`},
		{"TT.ACQUIRE a RULE two RULE sms", "-ERR rules: rule two counts in namespace default and"},
		{"TT.ACQUIRE a NS x RULE two", "-ERR ns: rule two counts in namespace default; leave NS out"},
		{"TT.ACQUIRE a" + strings.Repeat(" RULE off", 17), "-ERR rules: want at most 16 rules"},
		{"TT.ACQUIRE a" + strings.Repeat(" RULE many", 5), "-ERR rules: they have more than 64"},
		{"TT.ACQUIRE a RULE two KEY b" + strings.Repeat(" RULE many", 4),
			"-ERR checks[1].rules: they have more than 64"},
		{"TT.ADD a RULE two", "-ERR RULE: unknown option"},
		{"TT.COUNT a 24h", "[2]"},
	} {
		if got := c.do(step.command); !strings.HasPrefix(got, step.want) {
			t.Errorf("%s: %v, want %s", step.command, got, step.want)
		}
	}
}

// turning returns different rules on every call: its limit is 1000 plus the number of calls.
type turning struct{ asked atomic.Int64 }

func (r *turning) Rules() *twotier.RuleSet {
	return twotier.NewRuleSet([]twotier.Rule{{Name: "a",
		Limits: []twotier.RuleLimit{{Window: 60_000,
			Max: 1000 + r.asked.Add(1)}}}})
}

// TestOneVersionForOneCommand names a rule for two keys.
func TestOneVersionForOneCommand(t *testing.T) {
	changing := new(turning)
	c := dial(t, serve(t, resp.Options{Service: newService(t), Rules: changing}))
	if got := c.do("TT.ACQUIRE a RULE a KEY b RULE a"); got != "[1 0 1 1000 1 1000]" {
		t.Errorf("got %s", got)
	}
	if c.do("TT.ACQUIRE a LIMIT 1m 9"); changing.asked.Load() != 1 {
		t.Errorf("asked %d times for one command that names rules", changing.asked.Load())
	}
}

// TestRulesThatAreNotKnownYet asks a node that has not been able to read any rules.
func TestRulesThatAreNotKnownYet(t *testing.T) {
	c := dial(t, serve(t, resp.Options{Service: newService(t), Rules: namedRules{}}))
	for _, command := range []string{"TT.ACQUIRE a RULE two", "TT.ACQUIRE a"} {
		if got := c.do(command); !strings.HasPrefix(got,
			"-TRYAGAIN this node has not been able to read the rules") {
			t.Errorf("%s: %s", command, got)
		}
	}
	if got := c.do("TT.ACQUIRE a LIMIT 1m 5"); got != "[1 0 1 4]" {
		t.Errorf("with a limit: %s", got)
	}
}

// TestVerdictsOfRules counts the verdicts of each rule.
func TestVerdictsOfRules(t *testing.T) {
	counted := verdicts.New()
	c := dial(t, serve(t, resp.Options{Service: newService(t), Rules: newRules(),
		Verdicts: counted}))
	for range 3 {
		c.do("TT.ACQUIRE a LIMIT 1h 9 RULE two RULE shadow RULE off")
	}
	c.do("PING") // earlier commands are counted
	got := ""
	for _, r := range counted.Rows() {
		got += fmt.Sprintf("%s/%s %v\n", r.Namespace, r.Rule, r.Totals)
	}
	const want = "default/ [3 0 0 0]\ndefault/shadow [1 0 2 0]\ndefault/two [2 1 0 0]\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

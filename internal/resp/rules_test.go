package resp_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/companions"
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
	counted := verdicts.New()
	c := dial(t, serve(t, resp.Options{Service: newService(t), Rules: newRules(),
		Verdicts: counted}))
	c.expect([][2]string{
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
		{"TT.ACQUIRE a N 9 RULE two", "[0 -1 2 0 2 7]"},
	})
	c.do("PING") // earlier commands are counted
	const want = "default/ [1 0 0 0]\ndefault/shadow [1 0 1 0]\ndefault/two [3 1 0 0]\n" +
		"sms/ [1 0 0 0]\nsms/sms [4 0 0 0]\n"
	if got := rowsOf(counted); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
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
	c.expect([][2]string{{"TT.ACQUIRE a RULE a KEY b RULE a", "[1 0 1 1000 1 1000]"}})
	if c.do("TT.ACQUIRE a LIMIT 1m 9"); changing.asked.Load() != 1 {
		t.Errorf("asked %d times for one command that names rules", changing.asked.Load())
	}
}

// TestRulesThatAreNotKnownYet asks a node that has not been able to read any rules.
func TestRulesThatAreNotKnownYet(t *testing.T) {
	c := dial(t, serve(t, resp.Options{Service: newService(t), Rules: namedRules{}}))
	const unknown = "-TRYAGAIN this node has not been able to read the rules"
	c.expect([][2]string{{"TT.ACQUIRE a RULE two", unknown}, {"TT.ACQUIRE a", unknown},
		{"TT.ACQUIRE a LIMIT 1m 5", "[1 0 1 4]"}})
}

// TestShadow sends commands to a server whose namespaces are in shadow, except one: their limits
// refuse nothing, and the answers have the limits of the commands. A command may have more limits
// than its rules may.
func TestShadow(t *testing.T) {
	counted := verdicts.New()
	c := dial(t, serve(t, resp.Options{Service: newService(t), Verdicts: counted,
		Shadow: twotier.Shadow{"default": true, "strict": false}}))
	limits := strings.Repeat(" LIMIT 1m 1", 16)
	all := strings.Repeat(" 1 0", 16*5)
	for _, tt := range []struct{ command, want string }{
		{"TT.ACQUIRE k LIMIT 1m 1", "[1 0 1 0]"},
		{"TT.ACQUIRE k LIMIT 1m 1", "[1 0 2 0]"},
		{"TT.ACQUIRE k NS strict LIMIT 1m 1", "[1 0 1 0]"},
		{"TT.ACQUIRE k NS strict LIMIT 1m 1 KEY l LIMIT 1m 9", "[0 60000 1 0 0 9]"},
		{"CL.THROTTLE t 1 10 60 1", "[0 2 1 -1 12]"},
		{"CL.THROTTLE t 1 10 60 5", "[0 2 0 -1 12]"},
		{"TT.ACQUIRE a" + limits + " KEY b" + limits + " KEY c" + limits + " KEY d" + limits +
			" KEY e" + limits, "[1 0" + all + "]"},
	} {
		got := c.do(tt.command)
		if strings.HasPrefix(tt.want, "[0 6") { // the wait depends on the clock
			got = strings.Replace(got, strings.Fields(got)[1], "60000", 1)
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.command, got, tt.want)
		}
	}
	c.do("PING") // earlier commands are counted
	got := rowsOf(counted)
	if want := "default/ [8 0 2 0]\nstrict/ [1 1 0 0]\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// banning is a service with bans, like that of a node. It notes the banning rules attached to each
// operation.
type banning struct {
	*service
	mu   sync.Mutex
	told []string
}

func (s *banning) Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	s.note(op)
	if op.Hold > 0 {
		op.Until = s.now.Load() + op.Hold
	}
	x := companions.Extend(op, 0)
	err := s.service.Do(ctx, &x.Op, res)
	x.ReduceResult(res)
	return err
}

func (s *banning) DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	for i := range ops {
		res[i].Err = s.Do(ctx, &ops[i], &res[i])
	}
}

func (s *banning) note(op *twotier.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kinds := [...]string{twotier.Add: "add", twotier.Count: "count", twotier.Acquire: "acquire"}
	text := kinds[op.Kind]
	for _, r := range op.Rules {
		text += fmt.Sprintf(" %d:%s %d..%d for %d", r.Check, r.Rule, r.From, r.To, r.Window)
	}
	s.told = append(s.told, text)
}

// take returns and clears the recorded rules.
func (s *banning) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.Join(s.told, "; ")
	s.told = nil
	return text
}

// newBans returns a service with bans, and rules, some of which ban.
func newBans(t *testing.T) (*banning, namedRules) {
	limit := func(most int64) []twotier.RuleLimit {
		return []twotier.RuleLimit{{Window: 86_400_000, Max: most, Text: "24h"}}
	}
	return &banning{service: newService(t)}, namedRules{twotier.NewRuleSet([]twotier.Rule{
		{Name: "plain", Limits: limit(50)},
		{Name: "login", Limits: append(limit(2), limit(9)...), Ban: 600_000},
		{Name: "hours", Limits: limit(1), Ban: 7_200_000},
		{Name: "shadow", Limits: limit(1), Ban: 600_000, State: twotier.RuleShadow},
		{Name: "off", Limits: limit(1), Ban: 600_000, State: twotier.RuleOff},
		{Name: "sms", Namespace: "sms", Default: true, Limits: limit(1), Ban: 60_000},
	})}
}

// TestCommandsSayWhichRulesBan checks which rules with a ban reach the service, and which limits
// each of them watches.
func TestCommandsSayWhichRulesBan(t *testing.T) {
	s, rules := newBans(t)
	c := dial(t, serve(t, resp.Options{Service: s, Rules: rules}))
	for _, step := range []struct{ command, want string }{
		{"TT.ACQUIRE a RULE login", "acquire 0:login 0..2 for 600000"},
		{"TT.ACQUIRE a LIMIT 1h 5 RULE plain RULE login", "acquire 0:login 2..4 for 600000"},
		{"TT.ACQUIRE b RULE login RULE hours",
			"acquire 0:login 0..2 for 600000 0:hours 2..3 for 7200000"},
		{"TT.ACQUIRE c NS sms", "acquire 0:sms 0..1 for 60000"},
		{"TT.ACQUIRE d RULE plain KEY e RULE login KEY f NS sms",
			"acquire 1:login 0..2 for 600000 2:sms 0..1 for 60000"},
		{"TT.ACQUIRE g RULE shadow RULE off", "acquire"},
		{"TT.ADD a", "add"},
		{"TT.COUNT a 24h", "count"},
	} {
		if got := c.do(step.command); strings.HasPrefix(got, "-") {
			t.Errorf("%s: %s", step.command, got)
		}
		if got := s.take(); got != step.want {
			t.Errorf("%s is judged by %q, want %q", step.command, got, step.want)
		}
	}
	// A pipelined command must not inherit the rules of the command before it.
	c.send(command("TT.ACQUIRE a RULE login") + command("TT.ACQUIRE a LIMIT 1h 100") +
		command("TT.ACQUIRE a RULE nobody") + command("TT.ACQUIRE a RULE hours"))
	for range 4 {
		c.reply()
	}
	if got, want := s.take(), "acquire 0:login 0..2 for 600000; acquire; "+
		"acquire 0:hours 0..1 for 7200000"; got != want {
		t.Errorf("a pipeline is judged by %q, want %q", got, want)
	}
}

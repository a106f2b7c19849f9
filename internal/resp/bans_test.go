package resp_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/companions"
	"twotier.dev/twotier/internal/resp"
)

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

// TestAnswersDuringABan checks that a ban answers with refusals that carry its end, and that
// nothing is counted.
func TestAnswersDuringABan(t *testing.T) {
	s, rules := newBans(t)
	c := dial(t, serve(t, resp.Options{Service: s, Rules: rules}))
	for _, step := range []struct {
		command string
		allowed bool
		after   int64  // retry_after_ms, at least; at most a second more
		counted string // count and remaining of each limit
		pass    int64  // by how much time passes then
	}{
		{"TT.ACQUIRE a N 2 RULE login", true, 0, "2 0 2 7", 0},
		{"TT.ACQUIRE a RULE plain", true, 0, "3 47", 0},
		{"TT.ACQUIRE b RULE login DRYRUN N 3", false, -1, "0 2 0 9", 0},
		{"TT.ACQUIRE b RULE login", true, 0, "1 1 1 8", 0},
		{"TT.ACQUIRE b N 2 RULE login", false, 86_400_000, "1 1 1 8", 0}, // it bans
		{"TT.ACQUIRE b RULE login", false, 600_000, "1 1 1 8", 60_000},
		{"TT.ACQUIRE b RULE login COUNTDENIED", false, 540_000, "1 1 1 8", 0},
		{"TT.ACQUIRE b RULE login DRYRUN", false, 540_000, "1 1 1 8", 0},
		{"TT.ACQUIRE c RULE plain KEY b RULE login", false, 540_000, "0 50 1 1 1 8", 0},
		{"TT.ACQUIRE b RULE plain", true, 0, "2 48", 541_000},
		{"TT.ACQUIRE b N 7 LIMIT 1h 100", true, 0, "9 91", 0},
		{"TT.ACQUIRE c RULE login", true, 0, "1 1 1 8", 0},
	} {
		got := c.do(step.command)
		words := strings.Fields(strings.Trim(got, "[]"))
		if len(words) < 2 || strings.Join(words[2:], " ") != step.counted ||
			(words[0] == "1") != step.allowed {
			t.Errorf("%s: %s, want allowed %v and %s", step.command, got, step.allowed,
				step.counted)
			continue
		}
		after, err := strconv.ParseInt(words[1], 10, 64)
		if most := step.after + 1000; err != nil || after < step.after ||
			step.after < 86_400_000 && after > most {
			t.Errorf("%s: %s, want to be told to wait %d ms", step.command, got, step.after)
		}
		s.now.Add(step.pass)
	}
}

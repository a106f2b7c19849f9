package resp_test

import (
	"fmt"
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/resp"
	"twotier.dev/twotier/internal/verdicts"
)

// TestDistinct adds and counts values.
func TestDistinct(t *testing.T) {
	t.Parallel()
	c := dial(t, serve(t, resp.Options{Service: newService(t)}))
	c.expect([][2]string{
		{"TT.DISTINCT k VALUES 2 a b", "[]"},
		{"tt.distinct k values 3 a c c window 1m 1h", "[3 3]"},
		{"TT.DISTINCT k WINDOW 24h", "[3]"},
		{"TT.DISTINCT k NS other WINDOW 24h", "[0]"},
		{"TT.DISTINCT k TS 1699996400000 VALUES 1 late", "[]"},
		{"TT.DISTINCT k WINDOW 1m 2h", "[3 4]"},
		{"TT.DISTINCT k VALUES 2 a", "values: want their number"},
		{"TT.DISTINCT k VALUES 0 WINDOW 1m", "values: want their number"},
		{"TT.DISTINCT k VALUES 1 " + strings.Repeat("x", 1025), "values[0]: want 1 to 1024 bytes"},
		{"TT.DISTINCT k NS / VALUES 1 a", "ns: want 1 to 64"},
		{"TT.DISTINCT k TS 0 VALUES 1 a", "ts: want unix milliseconds"},
		{"TT.DISTINCT k VALUES 1 a VALUES 1 b WINDOW 1h", "values: given twice"},
		{"TT.DISTINCT k TS 1699996400000 TS 1699996400000 VALUES 1 a", "ts: given twice"},
		{"TT.DISTINCT k NS a NS b WINDOW 1h", "ns: given twice"},
		{"TT.DISTINCT k WINDOW 9d", "window: "},
		{"TT.DISTINCT k WINDOW nonsense", "window: want a duration"},
		{"TT.DISTINCT k NS other", "values: missing"},
		{"TT.DISTINCT k LIMIT 1m", "limits[0].window: want LIMIT, a window and a maximum"},
		{"TT.DISTINCT k LIMIT 1m x VALUES 1 a", "limits[0].max: want 0 or more"},
		{"TT.DISTINCT k LIMIT 1m 5 WINDOW 1m", "values: missing; limits and rules judge"},
		{"TT.DISTINCT k LIMIT 1m 5 TS 1699996400000 VALUES 1 a", "ts: limits and rules are about"},
		{"TT.DISTINCT k N 3 VALUES 1 a", "N: unknown option; want NS, TS, VALUES, LIMIT, RULE or"},
		{"TT.DISTINCT k RULE devices VALUES 1 a", `rules: there is no rule "devices"`},
		{"TT.DISTINCT k NS x WINDOW", "WINDOW: its value is missing"},
		{"TT.DISTINCT k", "wrong number of arguments"},
	})
}

// TestDistinctByRules adds values under limits and rules, and counts the verdicts.
func TestDistinctByRules(t *testing.T) {
	t.Parallel()
	limits := func(most ...int64) (all []twotier.RuleLimit) {
		for i, m := range most {
			all = append(all, twotier.RuleLimit{Window: int64(i+1) * 3_600_000, Max: m,
				Text: fmt.Sprint(i+1, "h")})
		}
		return all
	}
	named := namedRules{twotier.NewRuleSet([]twotier.Rule{
		{Name: "devices", Distinct: limits(2, 9), Overrides: []twotier.Override{{Key: "vip",
			Distinct: limits(5)}}},
		{Name: "tight", Distinct: limits(1), State: twotier.RuleShadow},
		{Name: "off", Distinct: limits(0), State: twotier.RuleOff},
		{Name: "events", Limits: limits(9)},
		{Name: "risk", Namespace: "risk", Default: true, Distinct: limits(1)},
		{Name: "risk-tight", Namespace: "risk", Default: true, State: twotier.RuleShadow,
			Distinct: limits(0)},
		{Name: "risk-events", Namespace: "risk", Default: true, Limits: limits(9)},
		{Name: "many", Distinct: limits(9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9)},
	})}
	counted := verdicts.New()
	c := dial(t, serve(t, resp.Options{Service: newService(t),
		Rules: named, Verdicts: counted}))
	c.expect([][2]string{
		{"TT.DISTINCT k VALUES 2 a b LIMIT 1h 2", "[1 0 2 0]"},
		{"TT.DISTINCT k LIMIT 1h 2 LIMIT 24h 9 VALUES 1 c WINDOW 7h", "[0 3600000 2 0 2 7 2]"},
		{"TT.DISTINCT k RULE tight RULE devices VALUES 1 a", "[1 0 2 0 2 0 2 7]"},
		{"TT.DISTINCT k RULE off RULE devices LIMIT 1h 5 VALUES 1 c", "[0 3600000 2 3 2 0 2 7]"},
		{"TT.DISTINCT vip RULE devices VALUES 3 a b c WINDOW 1h", "[1 0 3 2 3]"},
		{"TT.DISTINCT k RULE off VALUES 1 c WINDOW 1h", "[1 0 3]"},
		{"TT.DISTINCT k NS risk VALUES 1 a", "[]"},
		{"TT.DISTINCT k NS risk VALUES 1 a WINDOW 1h", "[1]"},
		{"TT.DISTINCT k NS risk VALUES 1 b WINDOW 1h", "-REFUSED by risk; nothing was added; retry_after_ms=3600000"},
		{"TT.DISTINCT k NS risk TS 1699999999000 VALUES 1 b WINDOW 1h", "[1]"},
		{"TT.DISTINCT k RULE risk VALUES 1 b", "[0 3600000 2 0]"},
		{"TT.DISTINCT k LIMIT 1h 2 VALUES 3 x y z", "[0 -1 3 0]"},
		{"TT.DISTINCT k RULE off TS 1699999999000 VALUES 1 b", "ts: limits and rules are about"},
		{"TT.DISTINCT k NS x RULE risk VALUES 1 b", "ns: rule risk counts in namespace risk"},
		{"TT.DISTINCT k RULE risk RULE devices VALUES 1 b", "rules: rule risk counts in namespace"},
		{"TT.DISTINCT k RULE events VALUES 1 b", "rules[0]: rule events has no distinct limits: "},
		{"TT.DISTINCT k" + strings.Repeat(" RULE many", 5) + " VALUES 1 b", "more than 64 limits"},
		{"TT.ACQUIRE k RULE devices", "rules: rule devices has only distinct limits, which judge"},
		{"TT.ACQUIRE k NS risk", "[1 0 1 8]"},
	})
	c.do("PING") // earlier commands are counted
	got := rowsOf(counted)
	const want = "default/ [2 2 0 0]\ndefault/devices [2 1 0 0]\ndefault/tight [0 0 1 0]\n" +
		"risk/risk [2 2 0 0]\nrisk/risk-events [1 0 0 0]\nrisk/risk-tight [0 0 3 0]\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestAcquireValues acquires with values, by limits and rules.
func TestAcquireValues(t *testing.T) {
	t.Parallel()
	named := namedRules{twotier.NewRuleSet([]twotier.Rule{{Name: "devices",
		Distinct: []twotier.RuleLimit{{Window: 3_600_000, Max: 2, Text: "1h"}}}})}
	c := dial(t, serve(t, resp.Options{Service: &banning{service: newService(t)}, Rules: named}))
	c.expect([][2]string{
		{"TT.ACQUIRE k VALUES 2 a b VLIMIT 1h 2 LIMIT 1m 5", "[1 0 1 4 2 0]"},
		{"tt.acquire k vlimit 1h 2 vlimit 2h 9 values 1 c limit 1m 5", "[0 3600000 1 4 2 0 2 7]"},
		{"TT.ACQUIRE k VALUES 1 a VLIMIT 1h 2", "[1 0 2 0]"},
		{"TT.ACQUIRE l LIMIT 1m 5 KEY m VALUES 1 a RULE devices KEY n VALUES 1 x VLIMIT 1m 0",
			"[0 -1 0 5 0 2 0 0]"},
		{"TT.ACQUIRE m VALUES 3 x y z RULE devices", "[0 -1 0 2]"},
		{"TT.ACQUIRE k VLIMIT 1h 2", "values: missing"},
		{"TT.ACQUIRE k VALUES 1 a", "value_limits: missing"},
		{"TT.ACQUIRE k VALUES 1 a VALUES 1 b VLIMIT 1h 2", "values: given twice"},
		{"TT.ACQUIRE k VALUES 2 a", "values: want their number"},
		{"TT.ACQUIRE l LIMIT 1m 5 KEY k VALUES 1 " + strings.Repeat("x", 1025),
			"checks[1].values[0]: want 1 to 1024 bytes"},
		{"TT.ACQUIRE k VALUES", "values: its value is missing"},
		{"TT.ACQUIRE k VALUES 1 a VLIMIT 1h", "value_limits[0].window: want VLIMIT, a window"},
		{"TT.ACQUIRE k VALUES 1 a VLIMIT 1h 2 VLIMIT day 2", "value_limits[1].window: want a"},
		{"TT.ACQUIRE k VALUES 1 a VLIMIT 1h -1", "value_limits[0].max: want 0 or more"},
		{"TT.ACQUIRE k VALUES 1 a VLIMIT 1h 2 TS 5", "ts: an acquire with values can't"},
		{"TT.ACQUIRE k VALUES 1 a VLIMIT 1h 2 HOLD 1m", "hold: an acquire with values can't"},
		{"TT.ACQUIRE k VALUES 1 a" + strings.Repeat(" VLIMIT 1h 2", 65),
			"value_limits: want at most 64 limits"},
		{"TT.ADD k VALUES 1 a", "VALUES: unknown option"},
	})
}

// TestPipelinedValuesStayApart sends commands with values in one piece: each has its own values,
// not those of a later command.
func TestPipelinedValuesStayApart(t *testing.T) {
	t.Parallel()
	c := dial(t, serve(t, resp.Options{Service: newService(t)}))
	c.send(command("TT.ACQUIRE k VALUES 2 a b VLIMIT 1h 9") +
		command("TT.DISTINCT k VALUES 2 c d") +
		command("TT.ACQUIRE k VALUES 2 b c VLIMIT 1h 9") + command("TT.ADD k N 3 ACK memory") +
		command("TT.DISTINCT k VALUES 1 e LIMIT 1h 4") + command("TT.DISTINCT k WINDOW 1m 1h"))
	c.expectReplies("[1 0 2 7]", "[]", "[1 0 4 5]", "OK", "[0 3600000 4 0]", "[4 4]")
}

package resp_test

import (
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/resp"
)

// TestAcquireValues acquires with values, by limits and rules.
func TestAcquireValues(t *testing.T) {
	t.Parallel()
	named := namedRules{twotier.NewRuleSet([]twotier.Rule{{Name: "devices",
		Distinct: []twotier.RuleLimit{{Window: 3_600_000, Max: 2, Text: "1h"}}}})}
	c := dial(t, serve(t, resp.Options{Service: &banning{service: newService(t)}, Rules: named}))
	for _, test := range []struct{ command, want string }{
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
	} {
		got, exact := c.do(test.command), strings.HasPrefix(test.want, "[")
		if exact && got != test.want || !strings.Contains(got, test.want) {
			t.Errorf("%.60s: %s, want %s", test.command, got, test.want)
		}
	}
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
	for i, want := range []string{"[1 0 2 7]", "[]", "[1 0 4 5]", "OK", "[0 3600000 4 0]",
		"[4 4]"} {
		if got := c.reply(); got != want {
			t.Errorf("reply %d is %s, want %s", i, got, want)
		}
	}
}

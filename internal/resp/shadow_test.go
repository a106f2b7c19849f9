package resp_test

import (
	"fmt"
	"strings"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/resp"
	"twotier.dev/twotier/internal/verdicts"
)

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
	got := ""
	for _, r := range counted.Rows() {
		got += fmt.Sprintf("%s/%s %v\n", r.Namespace, r.Rule, r.Totals)
	}
	if want := "default/ [8 0 2 0]\nstrict/ [1 1 0 0]\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

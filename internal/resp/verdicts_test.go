package resp_test

import (
	"fmt"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/resp"
	"twotier.dev/twotier/internal/verdicts"
)

// TestVerdictsAreCounted counts single commands and a pipeline.
func TestVerdictsAreCounted(t *testing.T) {
	counters := verdicts.New()
	c := dial(t, serve(t, resp.Options{Service: newService(t), Verdicts: counters}))
	const acquire = "TT.ACQUIRE k NS sms LIMIT 1m 3"
	c.do(acquire)
	c.send(command(acquire) + command("TT.ADD k") + command(acquire) + command(acquire) +
		command(acquire) + command("TT.ACQUIRE k") + command("CL.THROTTLE k 0 1 60"))
	for range 7 {
		c.reply()
	}
	c.do("PING") // earlier commands are counted
	got := ""
	for _, r := range counters.Rows() {
		got += fmt.Sprintf("%v %s/%s %v\n", r.Door, r.Namespace, r.Rule, r.Totals)
	}
	if want := "resp default/ [0 1 0 0]\nresp sms/ [3 2 0 0]\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestHistoryOfVerdictsIsReadOnly refuses writes to the history, because only nodes count there.
func TestHistoryOfVerdictsIsReadOnly(t *testing.T) {
	c := dial(t, serve(t, resp.Options{Service: newService(t)}))
	for text, refused := range map[string]bool{
		"TT.COUNT sms/refused 1m NS @verdicts":            false,
		"TT.SERIES sms/refused 1m NS @verdicts":           false,
		"TT.ADD sms/refused NS @verdicts":                 true,
		"TT.ACQUIRE sms/refused NS @verdicts LIMIT 1m 1":  true,
		"TT.RESET sms/refused NS @verdicts":               true,
		"TT.COUNT sms/refused 1m NS @verdict":             true,
		"TT.ACQUIRE a LIMIT 1m 1 KEY b NS @ LIMIT 1m 100": true,
	} {
		if got := c.do(text); strings.HasPrefix(got, "-") != refused {
			t.Errorf("%s: %s", text, got)
		}
	}
}

package clustertest

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// decisionRules are a rule that refuses and one in shadow.
const decisionRules = `
rules:
  - {name: receiver, namespace: sms, limits: [5/24h]}
  - {name: planned, namespace: sms, limits: [2/24h], state: shadow}
`

// decisions returns how many decisions all nodes have counted.
func (c *cluster) decisions(rule, verdict string) (n int64) {
	c.T.Helper()
	for _, i := range c.Running() {
		n += c.Nodes[i].Metric("twotier_decisions_total",
			fmt.Sprintf(`ns="sms",rule=%q,verdict=%q`, rule, verdict))
	}
	return n
}

// TestEachDecisionIsCountedOnce asks three nodes in turn about one key: the asked node counts the
// verdicts, even if another node decides, and no other node does. Dry runs have no verdict. Every
// node reports how often the key was refused, and would have been by the rule in shadow, whichever
// node was asked.
func TestEachDecisionIsCountedOnce(t *testing.T) {
	c := start(t, 3, "--rules", configured(t, decisionRules))
	const acquires, dry = 12, `,"dry_run":true`
	for i := range 2 * acquires {
		body := `{"ns":"sms","key":"k","rules":["receiver","planned"]`
		if i%2 == 0 {
			body += dry
		}
		c.Nodes[i/2%3].MustPost("/v1/acquire", body+"}")
	}
	for _, want := range []struct {
		rule, verdict string
		n             int64
	}{
		{"receiver", "allowed", 5}, {"receiver", "refused", acquires - 5},
		{"receiver", "shadow_refused", 0},
		{"planned", "allowed", 2}, {"planned", "shadow_refused", acquires - 2},
		{"planned", "refused", 0},
	} {
		if got := c.decisions(want.rule, want.verdict); got != want.n {
			t.Errorf("%s %s: %d, want %d", want.rule, want.verdict, got, want.n)
		}
	}
	for _, i := range c.Running() {
		for by, n := range map[string]int{"refused": acquires - 5, "shadow": acquires - 2} {
			_, got := c.Nodes[i].Get("/v1/top?window=24h&by=" + by)
			want := fmt.Sprintf(`{"window":"24h","keys":[{"ns":"sms","key":"k","count":%d}]}`, n)
			if string(got) != want {
				t.Errorf("node %d, by %s: %s, want %s", i, by, got, want)
			}
		}
	}
}

// TestNearIsAllowed asks three nodes about a key that comes near a limit: the history of the rule
// has its own verdict for that, and the history of all acquires counts it as allowed. No list of
// refused keys has it, and the decision log of the asked node does.
func TestNearIsAllowed(t *testing.T) {
	log := filepath.Join(t.TempDir(), "decided.json")
	c := start(t, 3, "--decisions", log, "--decisions-sample", "near=1", "--rules",
		configured(t, "rules: [{name: receiver, namespace: sms, limits: [5/24h], warn: 60%}]"))
	for i := range 5 {
		answer := c.Nodes[i%3].MustPost("/v1/acquire",
			`{"ns":"sms","key":"k","rules":["receiver"]}`)
		if near := strings.Contains(string(answer), `"near":["receiver"]`); near != (i >= 2) {
			t.Errorf("answer %d: %s", i, answer)
		}
	}
	if near, allowed := c.decisions("receiver", "near"),
		c.decisions("receiver", "allowed"); near != 3 || allowed != 2 {
		t.Errorf("%d near and %d others were allowed", near, allowed)
	}
	proctest.Until(t, "the history is complete", func() bool {
		near, _ := c.history(1, "sms/near/receiver")
		allowed, _ := c.history(1, "@all/allowed")
		return near == 3 && allowed == 5
	})
	for _, by := range []string{"refused", "shadow"} {
		if _, got := c.Nodes[0].Get("/v1/top?window=24h&by=" + by); strings.Contains(string(got),
			`"key"`) {
			t.Errorf("by %s: %s", by, got)
		}
	}
	proctest.Until(t, "the decisions are written", func() bool {
		text, err := os.ReadFile(log)
		must.Succeed(t, err)
		return strings.Count(string(text), `"verdict":"near"`) == 3 &&
			strings.Count(string(text), "\n") == 3
	})
}

// history returns how many verdicts node i has in the history of the last hour, as a count and as
// the sum of a series.
func (c *cluster) history(i int, key string) (count, series int64) {
	c.T.Helper()
	var counted struct{ Counts []struct{ Count int64 } }
	var points struct{ Points [][2]int64 }
	for path, into := range map[string]any{"count": &counted, "series": &points} {
		must.Succeed(c.T, c.Nodes[i].Ask("/v1/"+path+"?ns=@verdicts&window=1h&key="+key, "", into))
	}
	for _, p := range points.Points {
		series += p[1]
	}
	return counted.Counts[0].Count, series
}

// TestVerdictsHaveAHistory asks three nodes: their decisions soon appear in one history that all of
// them read, and a node's decisions outlive its stop. Clients can't write to the history, and it is
// not among the busiest keys.
func TestVerdictsHaveAHistory(t *testing.T) {
	c := start(t, 3, "--rules", configured(t, decisionRules))
	refused := int64(-5)
	acquire := func(i int) {
		c.Nodes[i].MustPost("/v1/acquire", `{"ns":"sms","key":"k","rules":["receiver"]}`)
		refused++
	}
	complete := func() {
		t.Helper()
		for _, i := range c.Running() {
			proctest.Until(t, "the history is complete", func() bool {
				count, series := c.history(i, "sms/refused/receiver")
				if count > refused || series > refused {
					t.Fatalf("%d and %d refusals, there were %d", count, series, refused)
				}
				return count == refused && series == refused
			})
		}
	}
	for i := range 12 {
		acquire(i % 3)
	}
	complete()
	for range 4 {
		acquire(0)
	}
	c.Stop(0)
	complete()
	for path, body := range map[string]string{
		"/v1/add":     `{"ns":"@verdicts","key":"sms/refused/receiver"}`,
		"/v1/acquire": `{"ns":"@verdicts","key":"k","limits":[{"window":"1m","max":1}]}`,
		"/v1/reset":   `{"ns":"@verdicts","key":"sms/refused/receiver"}`,
	} {
		status, text, err := c.Nodes[1].Post(path, body)
		if err != nil || status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %s, %v", path, status, text, err)
		}
	}
	if _, text := c.Nodes[1].Get("/v1/top?window=1h"); strings.Contains(string(text), "@") ||
		!strings.Contains(string(text), `"key":"k"`) {
		t.Errorf("the busiest keys: %s", text)
	}
}

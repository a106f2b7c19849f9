package clustertest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

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

// shadowRules are rules of every kind, which refuse the second request for a key.
const shadowRules = `
rules:
  - {name: one, namespace: ip, limits: [1/24h], ban: 10m}
  - {name: charged, namespace: ip, limits: [1/24h], charge: always}
  - {name: usual, namespace: usual, limits: [1/24h], default: true}
  - {name: devices, namespace: devices, distinct: 1/24h}
---
domain: edge
descriptors:
  - {key: ip, rate_limit: {unit: day, requests_per_unit: 1}}
`

// doors sends a request to every endpoint that decides, of a node with the shadow rules, and
// reports which of them refuse.
func doors(t *testing.T, p *proctest.Process) (refusing []string) {
	t.Helper()
	say := func(door string, refused bool) {
		if refused {
			refusing = append(refusing, door)
		}
	}
	for door, request := range map[string][2]string{
		"limits":  {"/v1/acquire", `{"key":"l","limits":[{"window":"24h","max":1}]}`},
		"rule":    {"/v1/acquire", `{"key":"r","rules":["one","charged"]}`},
		"default": {"/v1/acquire", `{"ns":"usual","key":"d"}`},
		"checks": {"/v1/acquire", `{"checks":[{"key":"c","limits":[{"window":"24h","max":1}]},` +
			`{"key":"c","rules":["one"]}]}`},
		"batch": {"/v1/batch", `{"ops":[{"op":"acquire","key":"b","limits":[{"window":"24h",` +
			`"max":1}]},{"op":"acquire","key":"b","rules":["one"]},{"op":"distinct","key":"b",` +
			`"values":["a","b"],"limits":[{"window":"24h","max":1}]}]}`},
		"values": {"/v1/distinct", `{"key":"v","values":["a","b"],"rules":["devices"]}`},
	} {
		answer := string(p.MustPost(request[0], request[1]))
		say(door, strings.Contains(answer, `"allowed":false`) ||
			strings.Contains(answer, `"over":true`))
	}
	status, _ := p.Get("/v1/forward-auth?rule=one&key=ip")
	say("forward-auth", status != 200)
	for _, door := range []string{"json", "grpc"} {
		say(door, asksEnvoy(t, p, door, "edge", "ip="+door))
	}
	client := redis.NewClient(&redis.Options{Addr: p.Resp})
	defer client.Close()
	for door, command := range map[string][]any{
		"TT.ACQUIRE":  {"TT.ACQUIRE", "t", "LIMIT", "24h", "1", "KEY", "t", "RULE", "one"},
		"TT.DISTINCT": {"TT.DISTINCT", "t", "VALUES", "2", "a", "b", "LIMIT", "24h", "1"},
		"CL.THROTTLE": {"CL.THROTTLE", "u", "0", "1", "86400"},
	} {
		got, err := client.Do(t.Context(), command...).Int64Slice()
		must.Succeed(t, err)
		say(door, got[0] != map[bool]int64{true: 0, false: 1}[door == "CL.THROTTLE"])
	}
	return refusing
}

// TestShadowRefusesNothing sends the same requests again and again to two nodes. The one with
// --shadow refuses nothing, starts no ban, and reports at every endpoint that it would have
// refused; the other one refuses at every endpoint.
func TestShadowRefusesNothing(t *testing.T) {
	for _, shadow := range []bool{true, false} {
		t.Run(fmt.Sprint("shadow=", shadow), func(t *testing.T) {
			c := start(t, 1, "--rules", configured(t, shadowRules), "--resp", "127.0.0.1:0",
				"--grpc", "127.0.0.1:0", "--shadow="+fmt.Sprint(shadow))
			p := c.Nodes[0]
			doors(t, p)
			refusing := doors(t, p)
			if want := 12; shadow != (len(refusing) == 0) || !shadow && len(refusing) != want {
				t.Errorf("refusing are %d: %v", len(refusing), refusing)
			}
			for _, door := range []string{"http", "forward-auth", "envoy-json", "resp", "grpc"} {
				refused := p.Metric("twotier_decisions_total", `door="`+door+`",`)
				if refused == 0 {
					t.Errorf("%s decided nothing", door)
				}
			}
			_, page := p.Get("/metrics")
			refused := strings.Count(string(page), `verdict="refused"} 0`)
			would := strings.Count(string(page), `verdict="shadow_refused"} 0`)
			if all := strings.Count(string(page), `verdict="refused"}`); shadow &&
				(refused != all || would == all) || !shadow && (refused == all || would != all) {
				t.Errorf("of %d, %d refuse nothing and %d would refuse nothing", all, refused,
					would)
			}
			_, bans := p.Get("/v1/bans")
			if none := strings.HasPrefix(string(bans), `{"bans":[]`); none != shadow {
				t.Errorf("bans: %s", bans)
			}
			if warns := strings.Contains(p.Log.String(), "none is refused"); warns != shadow {
				t.Errorf("the log warns: %v", warns)
			}
		})
	}
}

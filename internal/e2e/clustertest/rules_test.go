package clustertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

const rulesToken = "the token of the tests of rules"

// admin sends a request with the token. Headers are name and value in turn.
func admin(t *testing.T, p *proctest.Process, method, path, body string,
	headers ...string) (int, string, http.Header) {
	t.Helper()
	res, text, err := proctest.Send(p.HTTP, method, p.Base+path, body,
		append([]string{"Authorization", "Bearer " + rulesToken}, headers...)...)
	must.Succeed(t, err)
	return res.StatusCode, text, res.Header
}

// putRules makes a document the version after base.
func (c *cluster) putRules(i, base int, document string) {
	c.T.Helper()
	status, text, header := admin(c.T, c.Nodes[i], "PUT", "/v1/rules", document,
		"Content-Type", "application/yaml", "If-Match", fmt.Sprintf(`"%d"`, base))
	if want := fmt.Sprintf(`"%d"`, base+1); status != 200 || header.Get("ETag") != want {
		c.T.Fatalf("put %s: %d %s %v", want, status, text, header)
	}
}

// haveRules waits until all running nodes have a version.
func (c *cluster) haveRules(version int) {
	c.T.Helper()
	for _, i := range c.Running() {
		proctest.UntilNil(c.T, "rules of every node", func() error {
			_, text, header := admin(c.T, c.Nodes[i], "GET", "/v1/rules", "")
			if got := header.Get("ETag"); got != fmt.Sprintf(`"%d"`, version) {
				return fmt.Errorf("node %d has %s, want %d: %s", i, got, version, text)
			}
			return nil
		})
	}
}

// turns returns a document in which one rule refuses everything, and the other one nothing: in odd
// versions the first one refuses, in even ones the second.
func turns(version int) string {
	limits := []string{"0/24h", "1000000/24h"}
	if version%2 == 0 {
		slices.Reverse(limits)
	}
	return fmt.Sprintf("rules:\n- {name: one, limits: [%s]}\n- {name: two, limits: [%s]}\n",
		limits[0], limits[1])
}

// verdict is the answer to an acquire.
type verdict struct {
	Allowed bool     `json:"allowed"`
	By      []string `json:"refused_by"`
	Version *int     `json:"rules_version"`
	Detail  string   `json:"detail"`
}

// byTurns returns an error unless a verdict follows the rules of its version alone.
func (v verdict) byTurns() error {
	if v.Version == nil {
		return fmt.Errorf("no version: %+v", v)
	}
	want := "checks[0].one"
	if *v.Version%2 == 0 {
		want = "checks[1].two"
	}
	if v.Allowed || len(v.By) != 1 || v.By[0] != want {
		return fmt.Errorf("version %d: allowed %v, refused by %v", *v.Version, v.Allowed, v.By)
	}
	return nil
}

// TestRulesOfACluster changes rules through each of three nodes while all of them decide about keys
// of two owners. Each decision follows a single version, the one that it names.
func TestRulesOfACluster(t *testing.T) {
	c := start(t, 3, "--admin-token", rulesToken)
	c.putRules(0, 0, turns(1))
	c.haveRules(1)
	seen, stop := c.decideByTurns()
	const versions = 9
	for version := 2; version <= versions; version++ {
		before := seen[(version+1)%3].Load()
		c.putRules(version%3, version-1, turns(version))
		c.haveRules(version)
		proctest.Until(t, "decisions by each version", func() bool {
			return seen[(version+1)%3].Load() > before
		})
	}
	if status, text, _ := admin(t, c.Nodes[1], "PUT", "/v1/rules", "rules: []", "If-Match",
		`"3"`); status != 412 {
		t.Errorf("put in place of an old version: %d %s", status, text)
	}
	c.modeOf(1, "redis")
	c.putRules(1, versions, turns(versions+1))
	c.haveRules(versions + 1)
	stop()
}

// decideByTurns makes each node decide about keys of two other owners, one request after the other,
// until stop. seen counts the decisions of each node.
func (c *cluster) decideByTurns() (seen *[3]atomic.Int64, stop func()) {
	c.T.Helper()
	seen = new([3]atomic.Int64)
	done := make(chan struct{})
	var running sync.WaitGroup
	for i := range 3 {
		op := fmt.Sprintf(`{"checks":[{"key":%q,"rules":["one"]},{"key":%q,"rules":["two"]}]`,
			c.keyOf((i+1)%3, "turn"), c.keyOf((i+2)%3, "turn"))
		running.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					c.decide(i, op, &seen[i])
				}
			}
		})
	}
	return seen, func() { close(done); running.Wait() }
}

// decide sends an acquire alone and in a batch, whose operations all use one version.
func (c *cluster) decide(i int, op string, seen *atomic.Int64) {
	var one verdict
	var both struct{ Results []verdict }
	batch := `{"ops":[` + op + `,"op":"acquire"},` + op + `,"op":"acquire"}]}`
	for path, ask := range map[string]struct {
		body string
		into any
	}{"/v1/acquire": {op + "}", &one}, "/v1/batch": {batch, &both}} {
		if err := c.Nodes[i].Ask(path, ask.body, ask.into); err != nil {
			c.T.Error(err)
			return
		}
	}
	if err := one.byTurns(); err != nil {
		c.T.Error(err)
	}
	for _, v := range both.Results {
		if err := v.byTurns(); err != nil || *v.Version != *both.Results[0].Version {
			c.T.Errorf("batch of %d: %v", *both.Results[0].Version, err)
		}
	}
	seen.Add(1)
}

// TestRulesOfANodeThatWasAway kills a node, changes the rules, and starts it again with an old file
// of rules. Then Redis loses them.
func TestRulesOfANodeThatWasAway(t *testing.T) {
	file := configured(t, turns(1))
	c := start(t, 3, "--admin-token", rulesToken, "--rules", file)
	c.haveRules(1)
	c.Kill(2)
	c.putRules(0, 1, turns(2))
	c.Serve(2)
	c.haveRules(2)
	must.Succeed(t, c.Direct.Del(t.Context(), "tt:rules").Err())
	proctest.Until(t, "the rules are back in Redis", func() bool {
		return c.Direct.HGet(t.Context(), "tt:rules", "v").Val() == "2"
	})
	c.putRules(1, 2, turns(3))
	c.haveRules(3)
	_, text, _ := admin(t, c.Nodes[2], "GET", "/v1/rules?history=true", "")
	if n := strings.Count(text, `"version"`); n != 2 {
		t.Errorf("history after the loss: %s", text)
	}
}

// backtested holds the checked parts of a backtest's answer.
type backtested struct {
	LookedAt int `json:"looked_at"`
	Unread   int
	Version  *int64 `json:"rules_version"`
	Rules    []struct {
		Rule     string
		LookedAt int `json:"looked_at"`
		Refusing int
		Events   int64
		Refused  minMax
		Keys     []struct {
			Key     string
			Events  int64
			Refuses bool
			Refused minMax
			Limits  []struct{ Now, Peak, Refused minMax }
		}
	}
}

type minMax struct{ Min, Max int64 }

// backtest asks node i for the effect of rules.
func (c *cluster) backtest(i int, rules string) (b backtested) {
	c.T.Helper()
	status, text, _ := admin(c.T, c.Nodes[i], "POST", "/v1/backtest",
		fmt.Sprintf(`{"rules":%s,"top":50}`, rules), "Content-Type", "application/json")
	if err := json.Unmarshal([]byte(text), &b); err != nil || status != http.StatusOK {
		c.T.Fatalf("%d %s", status, text)
	}
	return b
}

// past is how many events each key had three hours ago, and recent how many it has now.
const past, recent = 20, 3

// proposed are the rules of TestBacktestOfACluster.
func proposed(spared string) string {
	return fmt.Sprintf(`{"rules":[
		{"name":"a-day","limits":["21/24h"],"overrides":[{"key":%q,"limits":["99/24h"]}]},
		{"name":"b-quarter","limits":["5/15m"],"state":"shadow"},
		{"name":"c-minute","limits":["5/1m"],"state":"off"},
		{"name":"d-sms","namespace":"sms","limits":["22/24h"]},
		{"name":"e-empty","namespace":"empty","limits":["0/24h"]}]}`, spared)
}

// TestBacktestOfACluster asks each of three nodes for the effect of rules on keys of all of them;
// one key has been refused and counted nothing. All nodes give the same answer, and it is true of
// the recorded events. The backtests change nothing.
func TestBacktestOfACluster(t *testing.T) {
	c := start(t, 3, "--admin-token", rulesToken)
	c.putRules(0, 0, "rules:\n- {name: in-force, limits: [2/24h]}\n")
	c.haveRules(1)
	var keys []string
	for i := range 3 {
		keys = append(keys, c.keyOf(i, "replayed"))
		for _, ns := range []string{"default", "sms"} {
			c.count(i+1, ns, keys[i], past, time.Now().Add(-3*time.Hour))
			c.count(i+2, ns, keys[i], recent, time.Time{})
		}
	}
	c.Nodes[1].MustPost("/v1/acquire", `{"key":"refused","limits":[{"window":"1m","max":0}]}`)
	before := c.Nodes[0].Count(keys[0], "24h").Counts[0]
	for i := range 3 {
		b := c.backtest(i, proposed(keys[1]))
		if b.LookedAt != 7 || b.Unread != 0 || b.Version != nil {
			t.Errorf("node %d looked at %d keys, not at %d; version %v", i, b.LookedAt, b.Unread,
				b.Version)
		}
		c.judgeBacktest(b, 1, 0, 1, 2, 3, 4)
		named := c.backtest(i, `["in-force"]`)
		if r := named.Rules[0]; r.LookedAt != 4 || r.Refusing != 3 || r.Refused !=
			(minMax{63, 63}) || *named.Version != 1 {
			t.Errorf("node %d: %+v", i, named)
		}
	}
	if after := c.Nodes[0].Count(keys[0], "24h").Counts[0]; after != before {
		t.Errorf("counted %+v, before %+v", after, before)
	}
	if status, text, header := admin(t, c.Nodes[0], "GET", "/v1/rules", ""); status != 200 ||
		header.Get("ETag") != `"1"` {
		t.Errorf("the rules have changed: %s", text)
	}
	c.backtestInRedis(keys)
}

// count counts events of a key, to the millisecond, through a node, at a given time unless that is
// zero.
func (c *cluster) count(i int, ns, key string, n int, at time.Time) {
	ts := ""
	if !at.IsZero() {
		ts = fmt.Sprintf(`,"ts":%d`, at.UnixMilli())
	}
	c.Nodes[i%3].MustPost("/v1/acquire", fmt.Sprintf(
		`{"ns":%q,"key":%q,"n":%d%s,"limits":[{"window":"24h","max":64}]}`, ns, key, n, ts))
}

// judgeBacktest compares a backtest of the proposed rules with the events of keys 0 and 2, and of
// key 1, which one rule spares: past events, and the recent ones the given number of times. It
// checks the rules listed in judged.
func (c *cluster) judgeBacktest(b backtested, times int64, judged ...int) {
	c.T.Helper()
	events := past + recent*times
	for i, want := range []struct {
		lookedAt, refusing int
		refused            minMax // of each key that has refusals
		spared             bool
	}{
		{4, 2, minMax{events - 21, events - 21}, true},
		{4, 0, minMax{past - 5, past - 5}, false},
		// The past is only known to a quarter of an hour.
		{4, 0, minMax{past - 5, past - 5}, false},
		{3, 3, minMax{events - 22, events - 22}, false},
		{0, 0, minMax{}, false},
	} {
		if !slices.Contains(judged, i) {
			continue
		}
		r, refused := &b.Rules[i], 3
		if want.spared {
			refused--
		} else if want.lookedAt == 0 {
			refused = 0
		}
		n := int64(refused)
		if r.LookedAt != want.lookedAt || r.Refusing != want.refusing || len(r.Keys) != refused ||
			r.Refused != (minMax{n * want.refused.Min, n * want.refused.Max}) {
			c.T.Errorf("%+v, want %+v", r, want)
		}
		for _, k := range r.Keys {
			if k.Refused != want.refused || k.Events != events || len(k.Limits) != 1 ||
				k.Limits[0].Refused != want.refused || k.Refuses != (want.refusing > 0) {
				c.T.Errorf("%s: %+v, want %+v", r.Rule, k, want)
			}
		}
	}
}

// backtestInRedis switches the cluster to Redis mode. The backtest then covers the keys of requests
// to any of the nodes, with the buckets in Redis.
func (c *cluster) backtestInRedis(keys []string) {
	c.T.Helper()
	c.modeOf(0, "redis")
	for i, key := range keys {
		for _, ns := range []string{"default", "sms"} {
			c.count(i, ns, key, recent, time.Time{})
		}
	}
	for i := range 3 {
		// By now the events of the last minute and quarter may exceed the limits, or not.
		c.judgeBacktest(c.backtest(i, proposed(keys[1])), 2, 0, 3)
	}
}

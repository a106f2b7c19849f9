package clustertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
)

// explainRules are rules of each kind.
const explainRules = "rules:\n- {name: login, limits: [3/24h]}\n" +
	"- {name: strict, limits: [1/24h], ban: 1h}\n- {name: devices, distinct: [2/24h]}\n"

// explanation is the part of an explanation that the test needs.
type explanation struct {
	Key, Node, Owner string
	Version          int `json:"rules_version"`
	Ban              *struct{ Rule string }
	Refusal          *explainedRefusal
	Rules            []struct {
		Rule     string
		Passes   bool
		Windows  []struct{ Count, Limit int64 }
		Distinct []struct{ Count, Limit int64 }
	}
	Refusals []explainedRefusal
}

type explainedRefusal struct {
	ID, Node, Door, Rule, Reason, Window string
	Count, Limit, Times                  int64
}

// refused sends a request to a node until it is refused, and returns the id of the refusal.
func (c *cluster) refused(i int, path, body string) string {
	c.T.Helper()
	var a struct{ ID string }
	for range 9 {
		if must.Succeed(c.T, c.Nodes[i].Ask(path, body, &a)); a.ID != "" {
			return a.ID
		}
		body = strings.ReplaceAll(body, `"values":["`, `"values":["+`)
	}
	c.T.Fatalf("%s %s is never refused", path, body)
	return ""
}

// explain asks a node about the refusal with an id, or about a key.
func (c *cluster) explain(i int, field, value string) (e explanation) {
	c.T.Helper()
	proctest.UntilNil(c.T, "an explanation", func() error {
		e = explanation{}
		return c.Nodes[i].Ask("/v1/explain?"+field+"="+url.QueryEscape(value), "", &e)
	})
	return e
}

// TestRefusalsAreExplainedByEveryNode refuses keys of each node at each node, by limits of requests
// and of rules, bans and different values. Every node explains every id, and lists the refusals of
// a key at all nodes with the counts of its owner, also in Redis mode. The ids of a dead node are
// answered with its name.
func TestRefusalsAreExplainedByEveryNode(t *testing.T) {
	c := start(t, 3, "--admin-token", rulesToken, "--resp", "127.0.0.1:0")
	c.putRules(0, 0, explainRules)
	c.haveRules(1)
	var key string
	var ids []string
	for i := range 3 {
		key = c.keyOf((i+1)%3, "explained")
		for reason, request := range map[string][2]string{
			"limit-of-request": {"/v1/acquire", `{"key":%q,"limits":[{"window":"1h","max":2}]}`},
			"limit":            {"/v1/acquire", `{"key":%q,"rules":["login"]}`},
			"ban":              {"/v1/acquire", `{"key":%q,"n":2,"rules":["strict"]}`},
			"distinct":         {"/v1/distinct", `{"key":%q,"values":["a"],"rules":["devices"]}`},
		} {
			body := fmt.Sprintf(request[1], key)
			id := c.refused(i, request[0], body)
			if reason == "ban" {
				id = c.refused(i, request[0], body) // the first one has started it
			}
			ids = append(ids, id)
			for at := range 3 {
				e := c.explain(at, "id", id)
				if e.Refusal == nil || e.Refusal.ID != id || e.Key != key ||
					!strings.HasPrefix(reason, e.Refusal.Reason) || e.Version != 1 ||
					e.Owner != fmt.Sprint("n", (i+1)%3) || e.Refusal.Node != fmt.Sprint("n", i) ||
					e.Node != fmt.Sprint("n", at) {
					t.Errorf("%s: node %d explains %+v as %+v", reason, at, e.Refusal, e)
				}
			}
		}
		e := c.explain(i, "key", key)
		passes, counts := "", ""
		for _, r := range e.Rules {
			passes += fmt.Sprint(r.Rule, ":", r.Passes, " ")
			for _, w := range append(r.Windows, r.Distinct...) {
				counts += fmt.Sprint(w.Count, "/", w.Limit, " ")
			}
		}
		if e.Ban == nil || e.Ban.Rule != "strict" || passes !=
			"devices:false login:false strict:false :false " || len(e.Refusals) != 5 ||
			!strings.HasPrefix(counts, "2/2 ") {
			t.Errorf("%s: %s, %s, %+v", key, passes, counts, e)
		}
	}
	explainedOverRESP(t, c.Nodes[1].Resp, ids[len(ids)-1], key)
	c.modeOf(0, "redis")
	if e := c.explain(1, "key", key); e.Owner != "" || len(e.Refusals) != 5 || e.Ban == nil {
		t.Errorf("in Redis mode: %+v", e)
	}
	c.modeOf(0, "two-tier")
	const dead = "n0"
	c.Kill(0)
	c.gone()
	code, text := c.Nodes[1].Get("/v1/explain?id=" + url.QueryEscape(ids[0]))
	if code != http.StatusNotFound || !strings.Contains(string(text),
		"node "+dead+", which had it, is not in the cluster any more") {
		t.Errorf("an id of a dead node: %d %s", code, text)
	}
	c.Serve(0)
	proctest.UntilNil(t, "an answer of the new process", func() error {
		if code, text := c.Nodes[1].Get("/v1/explain?id=" + url.QueryEscape(ids[0])); code != 404 ||
			!strings.Contains(string(text), "since it was started") {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
}

// explainedOverRESP asks about a refusal and a key with TT.EXPLAIN.
func explainedOverRESP(t *testing.T, address, id, key string) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: address})
	defer client.Close()
	for _, args := range [][]any{{"TT.EXPLAIN", "id", id}, {"TT.EXPLAIN", key, "RULE", "login"}} {
		text, err := client.Do(t.Context(), args...).Text()
		must.Succeed(t, err)
		var e explanation
		must.Succeed(t, json.Unmarshal([]byte(text), &e))
		if e.Key != key || len(args) == 3 && e.Refusal.ID != id ||
			len(args) == 4 && (len(e.Rules) != 1 || e.Rules[0].Rule != "login") {
			t.Errorf("%v: %s", args, text)
		}
	}
}

// hold makes a hold of a key through a node, under a limit on concurrent ones, and returns its id.
func (c *cluster) hold(i int, ns, key string) string {
	c.T.Helper()
	var a struct{ Hold string }
	must.Succeed(c.T, json.Unmarshal(c.Nodes[i].MustPost("/v1/acquire", fmt.Sprintf(
		`{"ns":%q,"key":%q,"n":0,"limits":[{"concurrent":100}],"hold":"1h"}`, ns, key)), &a))
	return a.Hold
}

// listsHolds fails the test unless every node soon lists these keys, each with a namespace and the
// number of its open holds, as those with the most.
func (c *cluster) listsHolds(when string, rows ...string) {
	c.T.Helper()
	want := `{"keys":[` + strings.Join(rows, ",") + `]}`
	for _, i := range c.Running() {
		proctest.UntilNil(c.T, when, func() error { // a list may be a second old
			if _, got := c.Nodes[i].Get("/v1/top?by=concurrent&n=3"); string(got) != want {
				return fmt.Errorf("node %d lists %s, want %s", i, got, want)
			}
			return nil
		})
	}
}

// hasOpen fails the test unless every node answers that so many holds of a key are open.
func (c *cluster) hasOpen(when, ns, key string, want int64) {
	c.T.Helper()
	for _, i := range c.Running() {
		var a struct {
			Open     int64
			Next     int64 `json:"next_end_ms"`
			Degraded bool
		}
		err := c.Nodes[i].Ask("/v1/holds?ns="+ns+"&key="+url.QueryEscape(key), "", &a)
		if err != nil || a.Open != want || a.Next > 3_630_000 || (a.Next > 0) != (want > 0) ||
			a.Degraded {
			c.T.Errorf("%s: node %d answers %+v, %v, want %d", when, i, a, err, want)
		}
	}
}

// row is a row of a list of keys.
func row(ns, key string, n int) string {
	return fmt.Sprintf(`{"ns":%q,"key":%q,"count":%d}`, ns, key, n)
}

// TestOpenHoldsAreListed holds keys of all nodes through all nodes. Each node answers how many
// holds are open, and lists the keys with the most, after a kill and in Redis mode too. The lists
// by events have neither the holds nor what is settled.
func TestOpenHoldsAreListed(t *testing.T) {
	c := start(t, 3, "--admin-token", rulesToken)
	keys := []string{c.keyOf(0, "user:a"), c.keyOf(1, "user:b"), c.keyOf(2, "user:c"),
		c.keyOf(0, "user:d")}
	var ids []string
	for k, n := range []int{4, 3, 2, 1} {
		for i := range n {
			ids = append(ids, c.hold(i%3, "default", keys[k]))
		}
	}
	for i := range 6 {
		c.hold(i%3, "sms", "slash/x")
	}
	c.Nodes[0].MustPost("/v1/acquire", fmt.Sprintf(
		`{"key":%q,"limits":[{"window":"1h","max":9}],"hold":"1h"}`, keys[3])) // not concurrent
	sms, a, b := row("sms", "slash/x", 6), row("default", keys[0], 4), row("default", keys[1], 3)
	c.listsHolds("at first", sms, a, b)
	for k, n := range []int64{4, 3, 2, 1} {
		c.hasOpen("at first", "default", keys[k], n)
	}
	c.hasOpen("without holds", "sms", "none", 0)
	for _, id := range ids[:2] {
		c.Nodes[1].MustPost("/v1/settle", fmt.Sprintf(`{"hold":%q,"n":0}`, id))
	}
	c.hasOpen("after two were settled", "default", keys[0], 2)
	c.listsHolds("after two were settled", sms, b, row("default", keys[0], 2))
	for _, i := range c.Running() {
		_, got := c.Nodes[i].Get("/v1/top?window=24h")
		want := `{"window":"24h","keys":[` + row("default", keys[3], 1) + `]}`
		if string(got) != want {
			t.Errorf("by events node %d lists %s, want %s", i, got, want)
		}
	}
	c.flushed()
	c.Kill(0)
	c.gone()
	c.hasOpen("after a kill", "default", keys[0], 2) // which reads it from Redis
	c.hasOpen("after a kill", "sms", "slash/x", 6)
	c.listsHolds("after a kill", sms, b, row("default", keys[0], 2))
	c.modeOf(1, "redis")
	c.hasOpen("in Redis mode", "default", keys[1], 3)
	c.listsHolds("of no key in Redis mode") // nodes list keys that they were asked for
	c.hold(1, "default", keys[1])
	last := c.hold(2, "default", keys[2])
	c.hasOpen("in Redis mode", "default", keys[2], 3)
	c.listsHolds("in Redis mode", row("default", keys[1], 4), row("default", keys[2], 3))
	c.Nodes[2].MustPost("/v1/settle", fmt.Sprintf(`{"hold":%q,"n":0}`, last))
	c.hasOpen("settled in Redis mode", "default", keys[2], 2)
	c.listsHolds("settled in Redis mode", row("default", keys[1], 4), row("default", keys[2], 2))
}

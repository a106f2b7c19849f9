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

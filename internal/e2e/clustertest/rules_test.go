package clustertest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

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
	if status, text, _ := admin(t, c.Nodes[1], "POST", "/v1/admin/mode",
		`{"mode":"redis"}`); status != 200 {
		t.Fatalf("mode: %d %s", status, text)
	}
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

package clustertest

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

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
	t.Parallel()
	server := redistest.Start(t)
	c := startOn(t, server, 3, proctest.Loopback(), "--admin-token", rulesToken, "--redis-expiry",
		redistest.Expiry(t, server))
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
	for _, node := range c.Nodes {
		node.Flushed()
	}
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

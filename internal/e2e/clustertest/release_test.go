package clustertest

import (
	"encoding/json"
	"fmt"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// releasing acquires 5 events of a key and of "all" at node i, which are released after some
// seconds unless they are settled.
func (c *cluster) releasing(i int, key, lasts string) (id string) {
	c.T.Helper()
	var a struct{ Hold string }
	must.Succeed(c.T, json.Unmarshal(c.Nodes[i].MustPost("/v1/acquire", fmt.Sprintf(`{"checks":[
		{"key":%q,"n":5,"limits":[{"window":"1h","max":9}]},
		{"key":"all","n":5,"limits":[{"window":"1h","max":99},{"concurrent":9}]}],
		"hold":%q,"on_expiry":"release"}`, key, lasts)), &a))
	if a.Hold == "" {
		c.T.Fatal("it is refused")
	}
	return a.Hold
}

// deadlines returns how many deadlines of holds Redis has.
func deadlines(t *testing.T, server *redistest.Server) (n int64) {
	t.Helper()
	client := server.Client(t)
	keys, err := client.Keys(t.Context(), "tt:due:*").Result()
	must.Succeed(t, err)
	for _, key := range keys {
		some, err := client.HLen(t.Context(), key).Result()
		must.Succeed(t, err)
		n += some
	}
	return n
}

// released waits until each of the running nodes has those counts.
func (c *cluster) released(counts map[string]int64) {
	c.T.Helper()
	proctest.UntilNil(c.T, "the holds are released", func() error {
		for key, want := range counts {
			for _, i := range c.Running() {
				if n, err := c.eventsOf(i, "default", key); err != nil || n != want {
					return fmt.Errorf("node %d has %d events of %s, want %d, %v", i, n, key, want,
						err)
				}
			}
		}
		return nil
	})
}

// TestHoldsAreReleasedThroughCrashes: the node that made a hold is killed, Redis goes down, and in
// the end all nodes are killed. What nobody has settled is released all the same, once.
func TestHoldsAreReleasedThroughCrashes(t *testing.T) {
	takesLong(t)
	t.Parallel()
	server := redistest.Start(t, redistest.AOF())
	c := startOn(t, server, 3, proctest.Loopback(), "--ack", "redis", "--redis-expiry",
		redistest.Expiry(t, server))
	written := func(n int64) {
		t.Helper()
		proctest.Until(t, "the deadlines are in Redis", func() bool {
			return deadlines(t, server) == n
		})
	}
	acknowledged := func(n int64) {
		t.Helper()
		if got := deadlines(t, server); got != n {
			t.Errorf("%d acknowledged deadlines are in Redis, want %d", got, n)
		}
	}
	c.releasing(0, "a", "5s")
	settled := c.releasing(0, "b", "1m")
	c.releasing(1, "c", "5s")
	acknowledged(3)
	c.Kill(0)
	c.gone()
	c.Nodes[2].MustPost("/v1/settle", fmt.Sprintf(`{"hold":%q,"n":7}`, settled))
	c.released(map[string]int64{"a": 0, "b": 7, "c": 0, "all": 7})
	written(0)

	c.releasing(1, "d", "2s")
	server.Kill()
	c.released(map[string]int64{"d": 0, "all": 7})
	server.Restart(t)
	proctest.Until(t, "Redis is up", func() bool {
		return c.Nodes[1].Metric("twotier_redis_up", "") == 1
	})
	written(0) // d's, which may have been there before
	c.releasing(1, "e", "8s")
	acknowledged(1)
	for _, i := range c.Running() {
		c.Nodes[i].Flushed()
	}
	for _, i := range c.Running() {
		c.Kill(i)
	}
	for i := range 3 {
		c.Serve(i)
	}
	c.Settled()
	c.released(map[string]int64{"a": 0, "b": 7, "c": 0, "d": 0, "e": 0, "all": 7})
	written(0)
}

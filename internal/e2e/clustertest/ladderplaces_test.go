package clustertest

import (
	"fmt"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// TestLaddersChangeOverARedisCluster changes ladders node by node, and back, where the counts are
// in a Redis Cluster, one of the namespaces has hash tags, and nodes borrow the hot key from each
// other.
func TestLaddersChangeOverARedisCluster(t *testing.T) {
	takesLong(t)
	t.Parallel()
	const tags = "burst: {hash_tags: true"
	before := configured(t, "namespaces: {default: {}, "+tags+"}}")
	after := configured(t, strings.Replace(richer, "burst: {", tags+", ", 1))
	rc := redistest.StartCluster(t, 3, 0)
	c := startOn(t, rc, 3,
		proctest.Loopback(), "--hot-rate", "5", "--config", before)
	tr, b := c.Traffic(), c.burst()
	c.borrows("with one ladder")
	c.reconfigure(tr, b, after, 2, 0)
	c.borrows("with different ladders")
	c.together("different ladders")
	c.reconfigure(tr, b, after, 1)
	c.reads("default", proctest.HotKey, "5s", 250)
	c.together("the new ladders")
	c.reconfigure(tr, b, before, 1, 2, 0)
	c.reads("default", proctest.HotKey, "5s", 100)
	b.stop()
	tr.Stop()
	orderly(t, tr, c.Settle("9 other ladders over a Redis Cluster", 0))
	b.withinLimits()
	b.counted(c)
}

// borrows waits until some node borrows a key, or lends it.
func (c *cluster) borrows(when string) {
	c.T.Helper()
	proctest.Until(c.T, "a key is hot "+when, func() bool {
		for _, i := range c.Running() {
			if c.Nodes[i].Metric("twotier_hot_keys", "") > 0 {
				return true
			}
		}
		return false
	})
}

// together asks each node about two keys with one hash tag; the second has room for three events.
// They are counted together or not at all.
func (c *cluster) together(when string) {
	c.T.Helper()
	for i := range 9 {
		tag := fmt.Sprintf("{%s}", when)
		body := fmt.Sprintf(`{"ack":"redis","checks":[{"ns":"burst","key":"%s:a",`+
			`"limits":[{"window":"1h","max":50}]},{"ns":"burst","key":"%s:b",`+
			`"limits":[{"window":"5s","max":1000},{"window":"1h","max":3}]}]}`, tag, tag)
		if text := string(c.Nodes[i%3].MustPost("/v1/acquire", body)); strings.Contains(text,
			`"allowed":true,"checks"`) != (i < 3) {
			c.T.Errorf("%s: acquire %d: %s", when, i, text)
		}
	}
	for _, key := range []string{"a", "b"} {
		c.hasEventsIn("1h", "burst", fmt.Sprintf("{%s}:%s", when, key), 3, when)
	}
}

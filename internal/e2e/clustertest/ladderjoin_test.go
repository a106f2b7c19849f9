package clustertest

import (
	"fmt"
	"testing"

	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// TestANodeWithAnotherLadderJoinsWithoutRedis starts a node with a ladder other than the cluster's
// while Redis is down, and has keys handed to it. All nodes report every count, before and after
// Redis is back.
func TestANodeWithAnotherLadderJoinsWithoutRedis(t *testing.T) {
	t.Parallel()
	const keys, each = 60, 3
	server := redistest.Start(t, redistest.AOF())
	c := newCluster(t, server, "--hash-seed", "7",
		"--config", configured(t, plain))
	c.Grow(1)
	server.Stop()
	for key := range keys {
		c.Nodes[0].MustPost("/v1/add",
			fmt.Sprintf(`{"key":"k%d","n":%d,"ack":"memory"}`, key, each))
	}
	c.Args[len(c.Args)-1] = configured(t,
		"namespaces: {default: {ladder: [300ms x 50, 3s x 60, 1m x 61], exact: 0}}")
	c.Serve(1)
	c.Settled()
	c.counts(keys, each)
	server.Restart(t)
	c.Barrier()
	c.counts(keys, each)
}

// counts waits until every node reports that many events of every key within an hour.
func (c *cluster) counts(keys int, each int64) {
	c.T.Helper()
	for _, i := range c.Running() {
		for key := range keys {
			proctest.UntilNil(c.T, "the nodes count what was counted", func() error {
				a, err := c.Nodes[i].TryCount(fmt.Sprintf("window=1h&key=k%d", key))
				if err == nil && (a.Counts[0].Min != each || a.Counts[0].Max != each) {
					err = fmt.Errorf("node %d: %+v", i, a)
				}
				return err
			})
		}
	}
}

package clustertest

import (
	"encoding/json"
	"fmt"
	"net/http"
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
			path := fmt.Sprintf("/v1/count?window=1h&key=k%d", key)
			proctest.UntilNil(c.T, "the nodes count what was counted", func() error {
				status, body, err := c.Nodes[i].TryGet(path)
				var a proctest.Answer
				if err != nil || status != http.StatusOK || json.Unmarshal(body, &a) != nil ||
					len(a.Counts) != 1 || a.Counts[0].Min != each || a.Counts[0].Max != each {
					return fmt.Errorf("node %d: %d %s %w", i, status, body, err)
				}
				return nil
			})
		}
	}
}

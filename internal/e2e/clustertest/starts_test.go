package clustertest

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// TestStartTogether starts all nodes of a cluster at the same time over an empty Redis. Each knows
// the gossip addresses of all. They become one cluster, which places keys by the seed in Redis, has
// one version of the rules that all of them brought, and counts as one.
func TestStartTogether(t *testing.T) {
	t.Parallel()
	const nodes = 4
	server := redistest.Start(t)
	rules := must.File(t, "rules.yaml", "rules: [{name: login, limits: [5/1m]}]\n")
	var addresses []string
	for range nodes { // on separate hosts: a free port could be taken meanwhile
		addresses = append(addresses, proctest.Host()+":7946")
	}
	c := newCluster(t, server)
	started, failed := [nodes]*proctest.Process{}, [nodes]error{}
	var starting sync.WaitGroup
	for i, own := range addresses {
		starting.Go(func() {
			started[i], failed[i] = program.TryServe(t,
				proctest.Options{Env: []string{"TWOTIER_HASH_SEED="}}, "--node", fmt.Sprint("n", i),
				"--redis", server.URL(), "--gossip", own, "--join", strings.Join(addresses, ","),
				"--rules", rules)
		})
	}
	starting.Wait()
	for i, p := range started {
		must.Succeed(t, failed[i])
		c.Nodes[i] = p
	}
	c.Settled()
	seed, err := server.Do("HGET", "tt:meta", "hash-seed").Text()
	must.Succeed(t, err)
	for i, p := range c.Nodes {
		var v struct {
			HashSeed json.Number `json:"hash_seed"`
		}
		must.Succeed(t, p.Ask("/v1/cluster?owners=true", "", &v))
		if version := p.Metric("twotier_rules_version", ""); v.HashSeed.String() != seed ||
			version != 1 {
			t.Errorf("node %d has the seed %s, Redis has %s; rules of version %d", i, v.HashSeed,
				seed, version)
		}
		p.MustPost("/v1/add", `{"key":"k"}`)
	}
	for i, p := range c.Nodes {
		if a := p.Count("k", "24h"); a.Counts[0].Count != nodes {
			t.Errorf("node %d: %+v", i, a)
		}
	}
}

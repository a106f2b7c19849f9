package acceptance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/race"
	"twotier.dev/twotier/internal/testing/redistest"
)

// TestClusterOfProcesses runs three processes over one Redis. They admit exactly the limit between
// them, before and after one is killed, and lose nothing that was acknowledged with ack=redis, or
// at all when they stop.
func TestClusterOfProcesses(t *testing.T) {
	t.Parallel()
	program := proctest.NewProgramFrom(t, "", fmt.Sprint("-race=", race.Enabled))
	c := proctest.NewCluster(t, program, redistest.Start(t), proctest.Loopback())
	c.Grow(3)

	const limit, counted = 50, 200
	if n := admitted(t, c.Nodes[0], c.Nodes[1], c.Nodes[2]); n != limit {
		t.Errorf("three nodes admit %d of a limit of %d", n, limit)
	}
	want := map[string]int64{}
	for i := range counted {
		key := fmt.Sprint("counted-", i)
		c.Nodes[i%3].MustPost("/v1/add", fmt.Sprintf(`{"key":%q,"ack":"redis"}`, key))
		want[key] = 1
	}
	c.Kill(2)
	c.Settled()
	if n := admitted(t, c.Nodes[0], c.Nodes[1]); n != 0 {
		t.Errorf("two nodes admit %d beyond the limit", n)
	}
	for key := range want {
		if n := c.Nodes[0].Count(key, "1h").Counts[0].Count; n != 1 {
			t.Errorf("%s: %d, want 1", key, n)
		}
		c.Nodes[1].MustPost("/v1/add", fmt.Sprintf(`{"key":%q}`, key))
		want[key] = 2
	}
	c.Stop(1)
	c.Stop(0)
	c.Holds(want)
}

// admitted sends a hundred requests for one key with a limit of 50 to nodes, in turn and all at
// once, and returns how many the nodes admit.
func admitted(t *testing.T, nodes ...*proctest.Process) int64 {
	t.Helper()
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			status, body, err := nodes[i%len(nodes)].Post("/v1/acquire",
				`{"key":"limited","limits":[{"window":"1h","max":50}],"ack":"redis"}`)
			var verdict struct{ Allowed bool }
			if err != nil || status != http.StatusOK || json.Unmarshal(body, &verdict) != nil {
				t.Errorf("%d %s %v", status, body, err)
			}
			if verdict.Allowed {
				admitted.Add(1)
			}
		})
	}
	wg.Wait()
	return admitted.Load()
}

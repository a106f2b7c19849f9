package clustertest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// startTraced starts three nodes, each with separate files for the access log and the decisions.
func startTraced(t *testing.T, args ...string) (c *cluster, dir string) {
	t.Helper()
	t.Parallel()
	server, dir := redistest.Start(t), t.TempDir()
	args = append([]string{"--redis-expiry", redistest.Expiry(t, server)}, args...)
	c = newCluster(t, server.URL(), redis.NewClient(&redis.Options{Addr: server.Addr()}),
		loopback())
	for i := range 3 {
		c.args = append(args[:len(args):len(args)],
			"--access-log", filepath.Join(dir, fmt.Sprint("access", i)),
			"--decisions", filepath.Join(dir, fmt.Sprint("decisions", i)))
		c.serve(i)
	}
	c.args = args
	c.settled()
	return c, dir
}

// asking is the client's span in the requests of traced.
const asking = "b7ad6b7169203331"

// traced makes a node carry out a request that is part of a trace, with these flags.
func traced(t *testing.T, p *proctest.Process, trace, flags, path, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.Base+path,
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Traceparent", "00-"+trace+"-"+asking+"-"+flags)
	res, err := p.HTTP.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s", path, body, res.Status)
	}
}

// logged returns the lines of a file that belong to a trace.
func logged(t *testing.T, path, trace string) (lines []map[string]any) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		line := map[string]any{}
		if err := json.Unmarshal(s.Bytes(), &line); err != nil {
			continue // the end of it is still to be written
		}
		if line["trace_id"] == trace {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestTracesReachPeers sends requests that are part of traces to node 0, which other nodes decide:
// alone, two of them together, one on behalf of the other, and about values, for which the owner
// may ask the others for their sets. The access log of each node that takes part names the trace,
// and no other node's does; so do the decisions of the node that was asked.
func TestTracesReachPeers(t *testing.T) {
	c, dir := startTraced(t)
	key := func(i int) string { return c.keyOf(i, "traced") }
	more := func(i int) string { return c.keyOf(i, "more") }
	for i, tt := range []struct {
		what, path, body string
		peers            [3]bool // who is asked by another node
		asked            string
	}{
		{"in memory", "/v1/acquire", acquiring(key(0)), [3]bool{}, ""},
		{"forwarded", "/v1/acquire", acquiring(key(1)), [3]bool{1: true}, "operations"},
		{"several owners", "/v1/acquire", acquiring(more(0), more(1), more(2)),
			[3]bool{1: true, 2: true}, "operations"},
		{"on its behalf", "/v1/acquire", acquiring(c.keyOf(1, "else"), c.keyOf(2, "else")),
			[3]bool{1: true, 2: true}, "operations"},
		{"values", "/v1/distinct", fmt.Sprintf(`{"key":%q,"values":["v"],`+
			`"limits":[{"window":"1h","max":9}]}`, key(2)), [3]bool{2: true}, "distinct"},
	} {
		trace := fmt.Sprintf("0af7651916cd43dd8448eb211c8031%02x", i)
		traced(t, c.nodes[0], trace, "01", tt.path, tt.body)
		for k, part := range tt.peers {
			access := filepath.Join(dir, fmt.Sprint("access", k))
			proctest.Until(t, fmt.Sprintf("%s: node %d has logged its part", tt.what, k),
				func() bool { return len(logged(t, access, trace)) > 0 || !part && k > 0 })
			for _, line := range logged(t, access, trace) {
				asked := k == 0 && line["path"] == tt.path || part && line["asked"] == tt.asked ||
					line["asked"] == "distinct pending" && tt.asked == "distinct"
				if !asked || line["error"] != nil {
					t.Errorf("%s: node %d has %v", tt.what, k, line)
				}
			}
		}
		decided := filepath.Join(dir, "decisions0")
		proctest.Until(t, tt.what+": its decision is written",
			func() bool { return len(logged(t, decided, trace)) > 0 })
	}
}

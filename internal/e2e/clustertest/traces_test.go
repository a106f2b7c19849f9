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

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// startTraced starts three nodes that send spans to a collector. decisions is the file of node 0.
func startTraced(t *testing.T) (c *cluster, spans *spanReceiver, decisions string) {
	t.Helper()
	t.Parallel()
	spans, server := newSpanReceiver(t), redistest.Start(t)
	decisions = filepath.Join(t.TempDir(), "decisions")
	c = newCluster(t, server, "--otlp-endpoint", spans.URL)
	c.Place = soon()
	args := c.Args
	c.Args = append(args[:len(args):len(args)], "--decisions", decisions)
	c.Serve(0)
	c.Args = args
	c.Serve(1)
	c.Serve(2)
	c.Settled()
	return c, spans, decisions
}

// asking is the client's span in the requests of traced.
const asking = "b7ad6b7169203331"

// traced makes a node carry out a request that is part of a trace, with these flags.
func traced(t *testing.T, p *proctest.Process, trace, flags, path, body string) {
	t.Helper()
	res, _, err := proctest.Send(p.HTTP, http.MethodPost, p.Base+path, body, "Traceparent",
		"00-"+trace+"-"+asking+"-"+flags)
	must.Succeed(t, err)
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s", path, body, res.Status)
	}
}

// logged returns the lines of a file that belong to a trace.
func logged(t *testing.T, path, trace string) (lines []map[string]any) {
	t.Helper()
	f, err := os.Open(path)
	must.Succeed(t, err)
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
// alone, two of them together, one on behalf of the other, and about values. Each node that takes
// part has a span of the trace, and no other node has one; the decisions of the node that was asked
// name the trace.
func TestTracesReachPeers(t *testing.T) {
	c, spans, decisions := startTraced(t)
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
			`"limits":[{"window":"1h","max":9}]}`, key(2)), [3]bool{2: true}, "operations"},
	} {
		trace := fmt.Sprintf("0af7651916cd43dd8448eb211c8031%02x", i)
		traced(t, c.Nodes[0], trace, "01", tt.path, tt.body)
		for k, part := range tt.peers {
			proctest.Until(t, fmt.Sprintf("%s: node %d has sent a span", tt.what, k),
				func() bool { return len(spans.at(k, trace)) > 0 || !part && k > 0 })
			for _, s := range spans.at(k, trace) {
				method := s.attributes["rpc.method"]
				asked := k == 0 && s.attributes["url.path"] == tt.path ||
					part && method == tt.asked &&
						!strings.HasPrefix(s.attributes["twotier.namespace"], "@")
				if !asked || s.failed {
					t.Errorf("%s: node %d has %+v", tt.what, k, s)
				}
			}
		}
		proctest.Until(t, tt.what+": its decision is written",
			func() bool { return len(logged(t, decisions, trace)) > 0 })
	}
}

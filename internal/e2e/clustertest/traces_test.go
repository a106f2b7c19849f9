package clustertest

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

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

// exported is a span as received by a collector.
type exported struct {
	node, name, trace, id, parent string
	kind                          otlp.Span_SpanKind
	failed                        bool
	attributes                    map[string]string
}

// spanReceiver is a collector of OpenTelemetry that accepts spans as OTLP over HTTP.
type spanReceiver struct {
	*httptest.Server
	t     *testing.T
	mu    sync.Mutex
	spans []exported
}

func newSpanReceiver(t *testing.T) *spanReceiver {
	c := &spanReceiver{t: t}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

// ServeHTTP implements [http.Handler].
func (c *spanReceiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &request)
	}
	if err != nil || r.URL.Path != "/v1/traces" ||
		r.Header.Get("Content-Type") != "application/x-protobuf" {
		c.t.Errorf("%s %s: %v", r.Method, r.URL, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, from := range request.GetResourceSpans() {
		about := attributesOf(from.GetResource().GetAttributes())
		for _, scope := range from.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, exported{node: about["service.instance.id"],
					name: s.GetName(), trace: hex.EncodeToString(s.GetTraceId()),
					id:         hex.EncodeToString(s.GetSpanId()),
					parent:     hex.EncodeToString(s.GetParentSpanId()),
					kind:       s.GetKind(),
					failed:     s.GetStatus().GetCode() == otlp.Status_STATUS_CODE_ERROR,
					attributes: attributesOf(s.GetAttributes())})
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// attributesOf returns attributes as texts.
func attributesOf(list []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range list {
		out[a.GetKey()] = a.GetValue().GetStringValue()
	}
	return out
}

// of returns the spans of a trace, or of all traces, in the order of their nodes' names.
func (c *spanReceiver) of(trace string) (spans []exported) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if trace == "" || s.trace == trace {
			spans = append(spans, s)
		}
	}
	slices.SortFunc(spans, func(a, b exported) int { return cmp.Compare(a.node, b.node) })
	return spans
}

// soon is loopback for nodes that send spans soon after they have ended.
func soon() func(i int) proctest.Place {
	at := proctest.Loopback()
	return func(i int) proctest.Place {
		p := at(i)
		p.Options.Env = []string{"OTEL_BSP_SCHEDULE_DELAY=50"}
		return p
	}
}

// TestSpansOfATrace sends requests to node 0 that other nodes decide. A request with a sampled
// traceparent has linked spans, one at each node that takes part in it; another request has none.
func TestSpansOfATrace(t *testing.T) {
	t.Parallel()
	to := newSpanReceiver(t)
	c := newCluster(t, redistest.Start(t), "--otlp-endpoint", to.URL)
	c.Place = soon()
	c.Grow(3)
	const unsampled, forwarded, several = "0af7651916cd43dd8448eb211c803100",
		"0af7651916cd43dd8448eb211c803101", "0af7651916cd43dd8448eb211c803102"
	key, keys := c.keyOf(1, "span"), []string{c.keyOf(1, "more"), c.keyOf(2, "more")}
	traced(t, c.Nodes[0], unsampled, "00", "/v1/acquire", acquiring(c.keyOf(1, "none")))
	traced(t, c.Nodes[0], forwarded, "01", "/v1/acquire", acquiring(key))
	traced(t, c.Nodes[0], several, "01", "/v1/acquire", acquiring(keys...))

	// Spans of a node are sent in the order in which they have ended.
	proctest.Until(t, "the spans of both traces are there",
		func() bool { return len(to.of(forwarded)) >= 2 && len(to.of(several)) >= 3 })
	proctest.UntilNil(t, "the spans of several owners are a tree",
		func() error { return oneTree(to.of(several)) })
	all := to.of("")
	for _, s := range all {
		if s.kind != otlp.Span_SPAN_KIND_SERVER || s.trace != forwarded && s.trace != several {
			t.Errorf("%+v", s)
		}
		if slices.ContainsFunc(append(keys, key), func(k string) bool {
			return strings.Contains(fmt.Sprint(s), k)
		}) {
			t.Errorf("a span has a key: %+v", s)
		}
	}
	spans := to.of(forwarded)
	if len(spans) != 2 {
		t.Fatalf("%+v", spans)
	}
	first, second := spans[0], spans[1]
	if first.node != "n0" || first.name != "POST /v1/acquire" || first.parent != asking ||
		first.attributes["http.route"] != "/v1/acquire" ||
		first.attributes["twotier.verdict"] != "allowed" ||
		first.attributes["twotier.namespace"] != "default" {
		t.Errorf("at the node that was asked: %+v", first)
	}
	if second.node != "n1" || second.name != "twotier.peer/operations" ||
		second.parent != first.id || second.attributes["twotier.verdict"] != "allowed" {
		t.Errorf("at the node that decides: %+v", second)
	}
	for i := range 3 {
		if n := c.Nodes[i].Metric("twotier_trace_spans_total", "dropped"); n != 0 {
			t.Errorf("node %d has dropped %d spans", i, n)
		}
	}
}

// oneTree returns nil if the spans of a trace are at all three nodes, one of them is the root,
// whose parent is the client's span, and all others have a parent among them at another node.
func oneTree(spans []exported) error {
	roots, nodes := 0, map[string]bool{}
	for _, s := range spans {
		nodes[s.node] = true
		if s.parent == asking {
			roots++
		} else if !slices.ContainsFunc(spans, func(p exported) bool {
			return p.id == s.parent && p.node != s.node
		}) {
			return fmt.Errorf("the parent of %+v is not there", s)
		}
	}
	if roots != 1 || len(nodes) != 3 {
		return fmt.Errorf("%d roots, at %d nodes: %+v", roots, len(nodes), spans)
	}
	return nil
}

// TestCollectorIsGone checks that a node with an unreachable collector answers requests, drops
// their spans and stops cleanly.
func TestCollectorIsGone(t *testing.T) {
	t.Parallel()
	opt := soon()(0).Options
	opt.MayComplain = true // that spans can't be sent
	// No process listens at this port: it would need root, and the port has no use.
	node := program.Serve(t, opt, "--otlp-endpoint", "http://127.0.0.1:1")
	const requests = 20
	for i := range requests {
		trace := fmt.Sprintf("0af7651916cd43dd8448eb211c8032%02x", i)
		traced(t, node, trace, "01", "/v1/add", `{"key":"k"}`)
	}
	proctest.Until(t, "all spans are dropped", func() bool {
		return node.Metric("twotier_trace_spans_total", "dropped") == requests
	})
	if n := node.Metric("twotier_trace_spans_total", "exported"); n != 0 {
		t.Errorf("%d spans are exported", n)
	}
	if status := node.Stop(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

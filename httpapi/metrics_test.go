package httpapi_test

import (
	"regexp"
	"strings"
	"testing"

	"twotier/internal/node"
)

func TestMetrics(t *testing.T) {
	f := newFake()
	f.stats = node.Stats{
		Counter: node.CounterStats{Keys: 5, PendingBuckets: 6, BatchesOKTotal: 7, BatchesUnknownTotal: 1, DroppedExpiredTotal: 2},
		Ops:     []node.OpCount{{Op: "add", Source: "memory", Total: 11}, {Op: "count", Source: "owner", Total: 3}},
		Members: 3, RingVersion: 9, Store: node.StoreHealth{Up: true, RoundTrips: 44, RTTMicros: 250}, ClockOffsetMS: -1500,
	}
	s := newServer(t, f)
	call(s, "POST /v1/add", `{"key":"k"}`)
	call(s, "POST /v1/add", `{`)
	got := string(call(s, "GET /metrics", "").Response.Body())
	for _, line := range []string{
		"twotier_pending_buckets 6", `twotier_ops_total{op="add",source="memory"} 11`, `twotier_ops_total{op="count",source="owner"} 3`,
		`twotier_flush_batches_total{result="ok"} 7`, `twotier_flush_batches_total{result="unknown"} 1`, "twotier_redis_roundtrips_total 44",
		"twotier_keys 5", `twotier_dropped_total{reason="expired"} 2`, "twotier_members 3", "twotier_ring_version 9", "twotier_redis_up 1",
		"twotier_redis_rtt_seconds 0.00025", "twotier_clock_offset_seconds -1.5", `twotier_http_requests_total{code="200"} 1`,
		`twotier_http_requests_total{code="400"} 1`, "twotier_http_connections 0",
	} {
		if !strings.Contains(got, "\n"+line+"\n") {
			t.Errorf("%s is missing", line)
		}
	}
	wellFormed(t, got)
}

// wellFormed checks the text format: every sample belongs to the metric that was declared last, and none is declared twice.
func wellFormed(t *testing.T, text string) {
	t.Helper()
	help := regexp.MustCompile(`^# HELP ([a-z_]+) \S.*$`)
	kind := regexp.MustCompile(`^# TYPE ([a-z_]+) (counter|gauge)$`)
	sample := regexp.MustCompile(`^([a-z_]+)(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? -?[0-9.e+-]+$`)
	declared, current := map[string]bool{}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if m := help.FindStringSubmatch(line); m != nil {
			if current = m[1]; declared[current] {
				t.Errorf("%s is declared twice", current)
			}
			declared[current] = true
		} else if m := kind.FindStringSubmatch(line); m != nil {
			if m[1] != current || strings.HasSuffix(current, "_total") != (m[2] == "counter") {
				t.Errorf("odd type: %s", line)
			}
		} else if m := sample.FindStringSubmatch(line); m == nil || m[1] != current {
			t.Errorf("odd line below %s: %q", current, line)
		}
	}
}

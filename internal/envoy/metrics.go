package envoy

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// counters are the values of the metrics.
type counters struct {
	passed, over, failed atomic.Int64 // requests by outcome
	unread               atomic.Int64 // connections whose clients read no answer
	limited              atomic.Int64 // requests, also counted as failed
}

// countAnswer counts an answer.
func (c *counters) countAnswer(over bool) {
	if over {
		c.over.Add(1)
	} else {
		c.passed.Add(1)
	}
}

// Refused returns how many connections were turned away because there were too many, and how many
// requests were refused because of the others in progress.
func (s *Server) Refused() (connections, requests int64) {
	return s.Rejected(), s.counters.limited.Load()
}

// Describe implements [prometheus.Collector]. It sends nothing, so this is an unchecked collector.
func (s *Server) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (s *Server) Collect(ch chan<- prometheus.Metric) {
	for _, c := range []struct {
		outcome string
		n       int64
	}{{"ok", s.counters.passed.Load()}, {"over_limit", s.counters.over.Load()},
		{"error", s.counters.failed.Load()}} {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("twotier_grpc_requests_total",
			"gRPC requests, by outcome.", []string{"outcome"}, nil), prometheus.CounterValue,
			float64(c.n), c.outcome)
	}
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("twotier_grpc_connections",
		"Open gRPC connections.", nil, nil), prometheus.GaugeValue, float64(s.conns.InUse()))
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("twotier_grpc_rejected_total",
		"gRPC connections turned away because there were too many.", nil, nil),
		prometheus.CounterValue, float64(s.Rejected()))
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("twotier_grpc_unread_total",
		"gRPC connections closed because an answer was not read in time.", nil, nil),
		prometheus.CounterValue, float64(s.counters.unread.Load()))
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("twotier_grpc_memory_bytes",
		"Memory of gRPC requests, until their answers are written.", nil, nil),
		prometheus.GaugeValue,
		float64(s.calls.InUse()+s.held.InUse()+s.works.InUse()+s.streams.InUse()))
}

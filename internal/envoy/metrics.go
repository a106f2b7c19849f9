package envoy

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier/internal/metrics"
)

// counters are the values of the metrics.
type counters struct {
	passed, over, failed atomic.Int64 // requests by outcome
	unread               atomic.Int64 // connections whose clients read no answer
}

// countAnswer counts an answer.
func (c *counters) countAnswer(over bool) {
	if over {
		c.over.Add(1)
	} else {
		c.passed.Add(1)
	}
}

// Collect implements [prometheus.Collector].
func (s *Server) Collect(ch chan<- prometheus.Metric) {
	to := metrics.Sink(ch)
	requests := to.Totals("twotier_grpc_requests_total", "gRPC requests, by outcome.", "outcome")
	requests(s.counters.passed.Load(), "ok")
	requests(s.counters.over.Load(), "over_limit")
	requests(s.counters.failed.Load(), "error")
	to.Gauge("twotier_grpc_connections", "Open gRPC connections.", int64(s.conns.InUse()))
	to.Total("twotier_grpc_rejected_total",
		"gRPC connections turned away because there were too many.", s.Rejected())
	to.Total("twotier_grpc_unread_total",
		"gRPC connections closed because an answer was not read in time.", s.counters.unread.Load())
	to.Gauge("twotier_grpc_memory_bytes",
		"Memory of gRPC requests, until their answers are written.",
		s.conns.Held(accounts))
}

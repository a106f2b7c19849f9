package otlp

import (
	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier/internal/metrics"
)

// Collect implements [prometheus.Collector].
func (x *Exporter) Collect(ch chan<- prometheus.Metric) {
	total := metrics.Sink(ch).Totals("twotier_trace_spans_total", "Spans that have ended, by "+
		"outcome: exported to the collector of --otlp-endpoint, or dropped because it is slow or "+
		"gone.", "outcome")
	total(x.Exported(), "exported")
	total(x.Dropped(), "dropped")
}

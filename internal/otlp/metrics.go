package otlp

import "github.com/prometheus/client_golang/prometheus"

// Describe implements [prometheus.Collector]. It sends nothing, so this is an unchecked collector.
func (x *Exporter) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (x *Exporter) Collect(ch chan<- prometheus.Metric) {
	desc := prometheus.NewDesc("twotier_trace_spans_total", "Spans that have ended, by outcome: "+
		"exported to the collector of --otlp-endpoint, or dropped because it is slow or gone.",
		[]string{"outcome"}, nil)
	for _, m := range []struct {
		outcome string
		n       int64
	}{{"exported", x.Exported()}, {"dropped", x.Dropped()}} {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(m.n), m.outcome)
	}
}

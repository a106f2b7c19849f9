package metrics

import "github.com/prometheus/client_golang/prometheus"

// Unchecked is part of a collector that describes no metrics in advance.
type Unchecked struct{}

// Describe implements [prometheus.Collector].
func (Unchecked) Describe(chan<- *prometheus.Desc) {}

// Sink receives metrics while they are collected.
type Sink chan<- prometheus.Metric

// Family begins a metric with labels. It returns a function that adds a value with label values in
// the same order.
func (s Sink) Family(kind prometheus.ValueType, name, help string,
	labels ...string) func(v int64, values ...string) {
	desc := prometheus.NewDesc(name, help, labels, nil)
	return func(v int64, values ...string) {
		s <- prometheus.MustNewConstMetric(desc, kind, float64(v), values...)
	}
}

// Totals begins a counter with labels, as Family does.
func (s Sink) Totals(name, help string, labels ...string) func(v int64, values ...string) {
	return s.Family(prometheus.CounterValue, name, help, labels...)
}

// Gauges begins a gauge with labels, as Family does.
func (s Sink) Gauges(name, help string, labels ...string) func(v int64, values ...string) {
	return s.Family(prometheus.GaugeValue, name, help, labels...)
}

// Total adds a counter without labels.
func (s Sink) Total(name, help string, v int64) { s.Totals(name, help)(v) }

// Gauge adds a gauge without labels.
func (s Sink) Gauge(name, help string, v int64) { s.Gauges(name, help)(v) }

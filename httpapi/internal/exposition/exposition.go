package exposition

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/durations"
)

// Exposition receives metrics while they are collected.
type Exposition struct {
	ch    chan<- prometheus.Metric
	began time.Time
}

// New returns an exposition that sends metrics to ch, of counters that began to count at a time.
func New(ch chan<- prometheus.Metric, began time.Time) Exposition { return Exposition{ch, began} }

// AddNode adds the metrics of a node: its operations, cluster, counter and store.
func (e Exposition) AddNode(st cluster.Stats) {
	e.addOperations(st)
	e.addCluster(st)
	e.addCounters(st.Counter)
	e.addStore(st)
}

// Family begins a metric with labels. It returns a function that adds a value with label values in
// the same order.
func (e Exposition) Family(
	kind prometheus.ValueType, name, help string, labels ...string,
) func(v int64, values ...string) {
	desc := prometheus.NewDesc(name, help, labels, nil)
	return func(v int64, values ...string) {
		e.ch <- prometheus.MustNewConstMetric(desc, kind, float64(v), values...)
	}
}

// Gauge adds a gauge without labels.
func (e Exposition) Gauge(name, help string, v int64) {
	e.Family(prometheus.GaugeValue, name, help)(v)
}

// Total adds a counter without labels.
func (e Exposition) Total(name, help string, v int64) {
	e.Family(prometheus.CounterValue, name, help)(v)
}

// addFloatGauge is like Gauge, for a value that is not an integer.
func (e Exposition) addFloatGauge(name, help string, v float64) {
	e.ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil),
		prometheus.GaugeValue, v)
}

// addHistogram adds a native histogram. The text format has none, and shows its sum and count.
func (e Exposition) addHistogram(name, help string, d cluster.Durations) {
	desc := prometheus.NewDesc(name, help, nil, nil)
	m, err := prometheus.NewConstNativeHistogram(desc, d.Count, d.Sum.Seconds(), d.Buckets, nil, 0,
		durations.Schema, 0, e.began)
	if err != nil {
		m = prometheus.NewInvalidMetric(desc, err)
	}
	e.ch <- m
}

// boolValue returns the gauge value for a boolean.
func boolValue(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

package exposition

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/durations"
	"twotier.dev/twotier/internal/metrics"
)

// Exposition receives metrics while they are collected.
type Exposition struct {
	metrics.Sink
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

// addFloatGauge is like Gauge, for a value that is not an integer.
func (e Exposition) addFloatGauge(name, help string, v float64) {
	e.Sink <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil),
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
	e.Sink <- m
}

// boolValue returns the gauge value for a boolean.
func boolValue(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

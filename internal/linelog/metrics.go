package linelog

import "github.com/prometheus/client_golang/prometheus"

// Describe implements [prometheus.Collector]. It sends nothing, so this is an unchecked collector.
func (l *Log) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector]: twotier_NAME_written_total and
// twotier_NAME_dropped_total.
func (l *Log) Collect(ch chan<- prometheus.Metric) {
	for _, m := range []struct {
		name, help string
		n          int64
	}{
		{"_written_total", "Lines that were written to --", l.Written()},
		{"_dropped_total", "Lines that were not written, because what is to take them is too slow " +
			"or fails, to --", l.Dropped()},
	} {
		desc := prometheus.NewDesc("twotier_"+l.opt.Name+m.name, m.help+l.opt.Name+".", nil, nil)
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(m.n))
	}
}

package linelog

import (
	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier/internal/metrics"
)

// Collect implements [prometheus.Collector]: twotier_NAME_written_total and
// twotier_NAME_dropped_total.
func (l *Log) Collect(ch chan<- prometheus.Metric) {
	to, name := metrics.Sink(ch), l.opt.Name
	to.Total("twotier_"+name+"_written_total", "Lines that were written to --"+name+".",
		l.Written())
	to.Total("twotier_"+name+"_dropped_total", "Lines that were not written, because what is to "+
		"take them is too slow or fails, to --"+name+".", l.Dropped())
}

package verdicts

import (
	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/metrics"
)

// Collect implements [prometheus.Collector].
func (c *Counters) Collect(ch chan<- prometheus.Metric) {
	to := metrics.Sink(ch)
	decisions := to.Totals("twotier_decisions_total",
		"Verdicts on acquires that this node was asked for, by namespace, by the rule that judged "+
			"(empty: limits without a name), by verdict and by door.",
		"ns", "rule", "verdict", "door")
	for _, row := range c.Rows() {
		for v, n := range row.Totals {
			decisions(n, row.Namespace, row.Rule, twotier.Verdict(v).String(), row.Door)
		}
	}
	seconds := prometheus.NewDesc("twotier_decision_seconds",
		"How long clients' acquires took, by door: from when the request was received until its "+
			"answer was made. Those of a batch took as long as the batch.", []string{"door"}, nil)
	for d := range c.latency {
		if upTo, count, sum := c.latency[d].cumulative(); count > 0 {
			ch <- prometheus.MustNewConstHistogram(seconds, count, sum, upTo, endpointNames[d])
		}
	}
	to.Total("twotier_decisions_unrecorded_total", "Verdicts that may be missing in their "+
		"history, because no answer said that they were counted.", c.unrecorded.Load())
}

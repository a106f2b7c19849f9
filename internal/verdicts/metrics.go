package verdicts

import (
	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier"
)

// Describe implements [prometheus.Collector]. It sends nothing, which makes this an unchecked
// collector.
func (c *Counters) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (c *Counters) Collect(ch chan<- prometheus.Metric) {
	decisions := prometheus.NewDesc("twotier_decisions_total",
		"Verdicts on acquires that this node was asked for, by namespace, by the rule that judged "+
			"(empty: limits without a name), by verdict and by door.",
		[]string{"ns", "rule", "verdict", "door"}, nil)
	for _, row := range c.Rows() {
		for v, n := range row.Totals {
			ch <- prometheus.MustNewConstMetric(decisions, prometheus.CounterValue, float64(n),
				row.Namespace, row.Rule, twotier.Verdict(v).String(), row.Door)
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
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("twotier_decisions_unrecorded_total",
		"Verdicts that may be missing in their history, because no answer said that they were "+
			"counted.", nil, nil), prometheus.CounterValue, float64(c.unrecorded.Load()))
}

package webhook

import "github.com/prometheus/client_golang/prometheus"

// Describe implements [prometheus.Collector]. It sends nothing, so this is an unchecked collector.
func (n *Notifier) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (n *Notifier) Collect(ch chan<- prometheus.Metric) {
	desc := prometheus.NewDesc("twotier_notifications_total", "Notifications of counts that have "+
		"reached the warning level of a rule, by outcome: sent to --notify-url, or dropped "+
		"because it is slow or fails.", []string{"outcome"}, nil)
	for _, m := range []struct {
		outcome string
		n       int64
	}{{"sent", n.Sent()}, {"dropped", n.Dropped()}} {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(m.n), m.outcome)
	}
}

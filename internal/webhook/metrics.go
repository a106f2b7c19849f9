package webhook

import (
	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier/internal/metrics"
)

// Collect implements [prometheus.Collector].
func (n *Notifier) Collect(ch chan<- prometheus.Metric) {
	total := metrics.Sink(ch).Totals("twotier_notifications_total", "Notifications of counts that "+
		"have reached the warning level of a rule, by outcome: sent to --notify-url, or dropped "+
		"because it is slow or fails.", "outcome")
	total(n.Sent(), "sent")
	total(n.Dropped(), "dropped")
}

// Package exposition renders the statistics of a node as Prometheus metrics. It reads existing
// counters when a page is made, so that requests pay nothing for metrics.
package exposition

// Package metrics sends metrics to Prometheus that are made when it asks for them, from counters
// that exist anyway.
package metrics

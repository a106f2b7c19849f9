package distinct

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// stats holds the counters of an engine.
type stats struct {
	failures, conflicts, evicted, flushed atomic.Int64
}

// Stats is a snapshot of an engine's state.
type Stats struct {
	// Keys is the number of keys in memory, Pending the number with unflushed values; UnflushedAge
	// is the age of the oldest unflushed change.
	Keys, Pending int64
	UnflushedAge  time.Duration
	// Flushed counts the writes of keys that the store has accepted.
	Flushed int64
	// Bytes is the memory in use, MaxBytes its bound.
	Bytes, MaxBytes int64
}

// Stats returns a snapshot.
func (e *Engine) Stats() Stats {
	s := Stats{Keys: e.keys.Load(), Bytes: e.bytes.Load(), MaxBytes: e.opt.MaxMemory,
		Flushed: e.stats.flushed.Load()}
	now := time.Now()
	for i := range e.shards {
		sh := &e.shards[i]
		sh.mu.Lock()
		for en := range sh.dirty {
			if !en.dirty() {
				continue
			}
			s.Pending++
			s.UnflushedAge = max(s.UnflushedAge, now.Sub(en.since))
		}
		sh.mu.Unlock()
	}
	return s
}

// Describe implements [prometheus.Collector]. It sends nothing, which makes this an unchecked
// collector.
func (e *Engine) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (e *Engine) Collect(ch chan<- prometheus.Metric) {
	s := e.Stats()
	for _, m := range []struct {
		name, help string
		kind       prometheus.ValueType
		value      float64
	}{
		{"twotier_distinct_keys", "Keys with distinct values in memory.", prometheus.GaugeValue,
			float64(s.Keys)},
		{"twotier_distinct_memory_bytes", "Memory used for distinct values.",
			prometheus.GaugeValue, float64(s.Bytes)},
		{"twotier_distinct_max_memory_bytes", "Bound of the memory for distinct values.",
			prometheus.GaugeValue, float64(s.MaxBytes)},
		{"twotier_distinct_pending_keys", "Keys with distinct values that Redis lacks.",
			prometheus.GaugeValue, float64(s.Pending)},
		{"twotier_distinct_unflushed_age_seconds",
			"Age of the oldest distinct value that Redis lacks.", prometheus.GaugeValue,
			s.UnflushedAge.Seconds()},
		{"twotier_distinct_failures_total",
			"Exchanges of a key's distinct values with Redis that failed.",
			prometheus.CounterValue, float64(e.stats.failures.Load())},
		{"twotier_distinct_conflicts_total",
			"Keys whose distinct values Redis had in another version than expected: another node " +
				"had written them, or Redis had lost some.",
			prometheus.CounterValue, float64(e.stats.conflicts.Load())},
		{"twotier_distinct_evicted_total",
			"Keys with distinct values that left memory for want of room.",
			prometheus.CounterValue, float64(e.stats.evicted.Load())},
	} {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(m.name, m.help, nil, nil), m.kind,
			m.value)
	}
}

package exposition

import (
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/syncer"
)

// addOperations renders the node's operations and its view of the cluster.
func (e Exposition) addOperations(st cluster.Stats) {
	ops := e.Totals("twotier_ops_total",
		"Operations answered, by kind and by where the answer came from.", "op", "source")
	for _, o := range st.Ops {
		ops(o.Total, o.Op, o.Source)
	}
	e.Gauge("twotier_members",
		"Members of the cluster that this node believes alive.", int64(st.Members))
	e.Gauge("twotier_ring_version", "Version of the table of owners.", int64(st.RingVersion))
}

// addCounters renders the state of the counters in memory.
func (e Exposition) addCounters(c syncer.Stats) {
	e.Gauge("twotier_pending_buckets", "Buckets that Redis has not acknowledged.", c.PendingBuckets)
	e.addFloatGauge("twotier_unflushed_age_seconds",
		"Age of the oldest count that Redis has not acknowledged.", c.UnflushedAge.Seconds())
	e.addFloatGauge("twotier_max_lag_seconds",
		"Bound of that age while Redis answers; 0 if memory alone bounds it.", c.MaxLag.Seconds())
	e.Gauge("twotier_lag_waiting", "Operations that wait because of that bound.", c.WaitingForRoom)
	e.Total("twotier_lag_refused_total",
		"Operations that waited in vain because of that bound, and were refused.", c.BehindTotal)
	e.Gauge("twotier_keys", "Keys in memory.", c.Keys)
	e.Gauge("twotier_memory_bytes", "Memory held for keys and buckets.", c.MemoryBytes)
	e.Gauge("twotier_memory_max_bytes",
		"Bound of the memory held for keys and buckets.", c.MaxMemory)
	e.Gauge("twotier_degraded_partitions",
		"Partitions whose last exchange with Redis failed.", c.DegradedPartitions)
	batches := e.Totals("twotier_flush_batches_total",
		"Batches sent to Redis: acknowledged, of unknown outcome and sent "+
			"again, or refused and kept.", "result")
	batches(c.BatchesOKTotal, "ok")
	batches(c.BatchesUnknownTotal, "unknown")
	batches(c.BatchesRefusedTotal, "refused")
	e.Total("twotier_flushed_buckets_total",
		"Bucket deltas that Redis acknowledged.", c.FlushedBucketsTotal)
	e.Total("twotier_loads_total", "Keys read from Redis.", c.LoadsTotal)
	e.Total("twotier_unread_total", "Keys not read because Redis does not list them.",
		c.UnreadTotal)
	e.Gauge("twotier_listed_keys", "Keys in Redis, beside those in memory, that are known by hash.",
		c.ListedKeys)
	e.Total("twotier_evictions_total", "Clean idle keys dropped from memory.", c.EvictedTotal)
	e.Total("twotier_losses_total",
		"Times that Redis was found to have lost data, which was published again.", c.LossesTotal)
	dropped := e.Totals("twotier_dropped_total",
		"Counts that never reached Redis, by reason.", "reason")
	dropped(c.DroppedExpiredTotal, "expired")
	dropped(c.BadKeysTotal, "bad_key")
}

// addStore renders the health of Redis and of the clock derived from it.
func (e Exposition) addStore(st cluster.Stats) {
	e.Gauge("twotier_redis_up", "Whether Redis answered the last probe.", boolValue(st.Store.Up))
	e.addHistogram("twotier_redis_exchange_seconds",
		"How long exchanges with Redis took that counted or read counts.", st.Store.Durations)
	e.Total("twotier_redis_roundtrips_total", "Exchanges with Redis.", st.Store.RoundTrips)
	e.addFloatGauge("twotier_redis_rtt_seconds",
		"Smallest round trip of the last probe.", float64(st.Store.RTTMicros)/1e6)
	e.addFloatGauge("twotier_clock_offset_seconds",
		"Clock of Redis minus the clock of this machine.",
		float64(st.ClockOffsetMS)/1e3)
	e.addFloatGauge("twotier_clock_skew_seconds",
		"Part of the offset that is not followed yet.", float64(st.ClockSkewMS)/1e3)
	e.Gauge("twotier_clock_doubted",
		"Whether the time can't be believed, so that answers are degraded.",
		boolValue(st.ClockDoubt != ""))
}

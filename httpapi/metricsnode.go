package httpapi

import (
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/syncer"
)

// node renders the node's operations and its view of the cluster.
func (e exposition) node(st cluster.Stats) {
	ops := e.family(total, "twotier_ops_total",
		"Operations answered, by kind and by where the answer came from.", "op", "source")
	for _, o := range st.Ops {
		ops(o.Total, o.Op, o.Source)
	}
	e.gauge("twotier_members",
		"Members of the cluster that this node believes alive.", int64(st.Members))
	e.gauge("twotier_ring_version", "Version of the table of owners.", int64(st.RingVersion))
}

// counter renders the state of the counters in memory.
func (e exposition) counter(c syncer.Stats) {
	e.gauge("twotier_pending_buckets", "Buckets that Redis has not acknowledged.", c.PendingBuckets)
	e.float("twotier_unflushed_age_seconds",
		"Age of the oldest count that Redis has not acknowledged.", c.UnflushedAge.Seconds())
	e.float("twotier_max_lag_seconds",
		"Bound of that age while Redis answers; 0 if memory alone bounds it.", c.MaxLag.Seconds())
	e.gauge("twotier_lag_waiting", "Operations that wait because of that bound.", c.WaitingForRoom)
	e.total("twotier_lag_refused_total",
		"Operations that waited in vain because of that bound, and were refused.", c.BehindTotal)
	e.gauge("twotier_keys", "Keys in memory.", c.Keys)
	e.gauge("twotier_memory_bytes", "Memory held for keys and buckets.", c.MemoryBytes)
	e.gauge("twotier_memory_max_bytes",
		"Bound of the memory held for keys and buckets.", c.MaxMemory)
	e.gauge("twotier_degraded_partitions",
		"Partitions whose last exchange with Redis failed.", c.DegradedPartitions)
	batches := e.family(total, "twotier_flush_batches_total",
		"Batches sent to Redis: acknowledged, of unknown outcome and sent "+
			"again, or refused and kept.", "result")
	batches(c.BatchesOKTotal, "ok")
	batches(c.BatchesUnknownTotal, "unknown")
	batches(c.BatchesRefusedTotal, "refused")
	e.total("twotier_flushed_buckets_total",
		"Bucket deltas that Redis acknowledged.", c.FlushedBucketsTotal)
	e.total("twotier_loads_total", "Keys read from Redis.", c.LoadsTotal)
	e.total("twotier_unread_total", "Keys not read because Redis does not list them.",
		c.UnreadTotal)
	e.gauge("twotier_listed_keys", "Keys in Redis, beside those in memory, that are known by hash.",
		c.ListedKeys)
	e.total("twotier_evictions_total", "Clean idle keys dropped from memory.", c.EvictedTotal)
	e.total("twotier_losses_total",
		"Times that Redis was found to have lost data, which was published again.", c.LossesTotal)
	dropped := e.family(total, "twotier_dropped_total",
		"Counts that never reached Redis, by reason.", "reason")
	dropped(c.DroppedExpiredTotal, "expired")
	dropped(c.BadKeysTotal, "bad_key")
}

// store renders the health of Redis and of the clock derived from it.
func (e exposition) store(st cluster.Stats) {
	e.gauge("twotier_redis_up", "Whether Redis answered the last probe.", whether(st.Store.Up))
	e.durations("twotier_redis_exchange_seconds",
		"How long exchanges with Redis took that counted or read counts.", st.Store.Durations)
	e.total("twotier_redis_roundtrips_total", "Exchanges with Redis.", st.Store.RoundTrips)
	e.float("twotier_redis_rtt_seconds",
		"Smallest round trip of the last probe.", float64(st.Store.RTTMicros)/1e6)
	e.float("twotier_clock_offset_seconds", "Clock of Redis minus the clock of this machine.",
		float64(st.ClockOffsetMS)/1e3)
	e.float("twotier_clock_skew_seconds",
		"Part of the offset that is not followed yet.", float64(st.ClockSkewMS)/1e3)
	e.gauge("twotier_clock_doubted",
		"Whether the time can't be believed, so that answers are degraded.",
		whether(st.ClockDoubt != ""))
}

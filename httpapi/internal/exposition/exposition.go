package exposition

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/durations"
	"twotier.dev/twotier/internal/metrics"
	"twotier.dev/twotier/syncer"
)

// Exposition receives metrics while they are collected.
type Exposition struct {
	metrics.Sink
	began time.Time
}

// New returns an exposition that sends metrics to ch, of counters that began to count at a time.
func New(ch chan<- prometheus.Metric, began time.Time) Exposition { return Exposition{ch, began} }

// AddNode adds the metrics of a node: its operations, cluster, counter and store.
func (e Exposition) AddNode(st cluster.Stats) {
	e.addOperations(st)
	e.addCluster(st)
	e.addCounters(st.Counter)
	e.addStore(st)
}

// addFloatGauge is like Gauge, for a value that is not an integer.
func (e Exposition) addFloatGauge(name, help string, v float64) {
	e.Sink <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil),
		prometheus.GaugeValue, v)
}

// addHistogram adds a native histogram. The text format has none, and shows its sum and count.
func (e Exposition) addHistogram(name, help string, d cluster.Durations) {
	desc := prometheus.NewDesc(name, help, nil, nil)
	m, err := prometheus.NewConstNativeHistogram(desc, d.Count, d.Sum.Seconds(), d.Buckets, nil, 0,
		durations.Schema, 0, e.began)
	if err != nil {
		m = prometheus.NewInvalidMetric(desc, err)
	}
	e.Sink <- m
}

// boolValue returns the gauge value for a boolean.
func boolValue(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

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

// addCluster renders the node's part in the cluster: the members, its partitions, handovers and
// traffic between nodes.
func (e Exposition) addCluster(st cluster.Stats) {
	states := e.Gauges("twotier_member_states",
		"Members by state, as this node sees them.", "state")
	for _, s := range st.States {
		states(int64(s.Members), string(s.State))
	}
	modes := e.Gauges("twotier_mode",
		"1 for the mode that this node counts in.", "mode")
	for _, mode := range []cluster.Mode{cluster.TwoTier, cluster.Redis} {
		modes(boolValue(st.Mode == mode), string(mode))
	}
	e.Total("twotier_ring_changes_total",
		"Changes of the members, or of what one says of itself, since this node joined.",
		st.TablesTotal)
	e.addPartitions(st)
	hot := e.Gauges("twotier_hot_keys",
		"Keys that several nodes count at the same time, by whose they are.", "owner")
	hot(int64(st.HotKeys), "self")
	hot(int64(st.LeasedKeys), "other")
	e.Total("twotier_remembered_refusals_total",
		"Operations refused without asking the owner, whose last refusal this node remembered.",
		st.RememberedRefusalsTotal)
	e.addPeers(st)
}

// addPartitions renders the partitions that this node decides for.
func (e Exposition) addPartitions(st cluster.Stats) {
	e.Gauge("twotier_partitions_owned",
		"Partitions that the table gives to this node.", int64(st.Owned))
	e.Gauge("twotier_partitions_held",
		"Partitions that this node has, be it on the way to another.", int64(st.Held))
	states := e.Gauges("twotier_partition_states",
		"Partitions by what this node does with them: decides, waits for, "+
			"decides until the owner comes for it, hands over.", "state")
	states(int64(st.Phases.Own), "own")
	states(int64(st.Phases.Incoming), "incoming")
	states(int64(st.Phases.Outgoing), "outgoing")
	states(int64(st.Phases.Moving), "moving")
	moves := e.Totals("twotier_handovers_total",
		"Partitions that changed hands, by direction, and whether the state "+
			"came directly or by way of the store.", "direction", "via")
	moves(st.Moves.Taken, "in", "peer")
	moves(st.Moves.FromStore, "in", "store")
	moves(st.Moves.Given, "out", "peer")
	moves(st.Moves.Abandoned, "out", "store")
	e.Total("twotier_handovers_undone_total",
		"Partitions that were to be handed over and were kept.", st.Moves.TakenBack)
}

// maxPeerSeries bounds the series that have a member in a label. twotier_member_states counts the
// others too.
const maxPeerSeries = 64

// addPeers renders the traffic between nodes. A member that is gone has no series.
func (e Exposition) addPeers(st cluster.Stats) {
	up := e.Gauges("twotier_peer_up",
		"Whether another member answers this node; where it does not, it is done without.", "peer")
	for _, l := range st.Links[:min(len(st.Links), maxPeerSeries)] {
		up(boolValue(l.Up), l.ID)
	}
	forwarded := e.Totals("twotier_forwarded_total",
		"Operations sent to the owners of their keys, and served for other nodes.", "direction")
	forwarded(st.Peers.TasksTotal, "out")
	forwarded(st.ServedTotal, "in")
	e.Total("twotier_peer_messages_total",
		"Messages to other nodes, those sent again included.", st.Peers.MessagesTotal)
	e.Total("twotier_peer_resent_total",
		"Messages to other nodes that were sent again.", st.Peers.ResentTotal)
	e.Total("twotier_peer_failures_total",
		"Messages to other nodes that got no answer in the end.", st.Peers.FailedTotal)
}

package exposition

import (
	"twotier.dev/twotier/internal/cluster"
)

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

package httpapi

import (
	"twotier/internal/node"
)

// cluster renders what the node has to do with the others: who is there, which partitions it has, what moved, and what was said.
func (e *exposition) cluster(st node.Stats) {
	e.head("twotier_member_states", "gauge", "Members by state, as this node sees them.")
	for _, s := range st.States {
		e.sample("twotier_member_states", int64(s.Members), "state", s.State)
	}
	e.head("twotier_mode", "gauge", "1 for the mode that this node counts in.")
	for _, mode := range []node.Mode{node.ModeTwoTier, node.ModeRedis} {
		e.sample("twotier_mode", whether(st.Mode == mode), "mode", string(mode))
	}
	e.total("twotier_ring_changes_total", "Changes of the members, or of what one says of itself, since this node joined.", st.TablesTotal)
	e.partitions(st)
	e.head("twotier_hot_keys", "gauge", "Keys that several nodes count at the same time, by whose they are.")
	e.sample("twotier_hot_keys", int64(st.SpreadKeys), "owner", "self")
	e.sample("twotier_hot_keys", int64(st.LeasedKeys), "owner", "other")
	e.total("twotier_near_total", "Refusals by the owners of keys that this node remembered.", st.NearTotal)
	e.peers(st)
}

// partitions renders who decides about what.
func (e *exposition) partitions(st node.Stats) {
	e.gauge("twotier_partitions_owned", "Partitions that the table gives to this node.", int64(st.Owned))
	e.gauge("twotier_partitions_held", "Partitions that this node has, be it on the way to another.", int64(st.Held))
	e.head("twotier_partition_states", "gauge",
		"Partitions by what this node does with them: decides, waits for, decides until the owner comes for it, hands over.")
	e.sample("twotier_partition_states", int64(st.Phases.Own), "state", "own")
	e.sample("twotier_partition_states", int64(st.Phases.Gaining), "state", "gaining")
	e.sample("twotier_partition_states", int64(st.Phases.Losing), "state", "losing")
	e.sample("twotier_partition_states", int64(st.Phases.Moving), "state", "moving")
	e.head("twotier_handovers_total", "counter",
		"Partitions that changed hands, by direction, and whether the state came directly or by way of the store.")
	e.sample("twotier_handovers_total", st.Moves.Taken, "direction", "in", "via", "peer")
	e.sample("twotier_handovers_total", st.Moves.Begun, "direction", "in", "via", "store")
	e.sample("twotier_handovers_total", st.Moves.Given, "direction", "out", "via", "peer")
	e.sample("twotier_handovers_total", st.Moves.LetGo, "direction", "out", "via", "store")
	e.total("twotier_handovers_undone_total", "Partitions that were to be handed over and were kept.", st.Moves.TakenBack)
}

// maxPeerSeries bounds the series that have a member in a label. twotier_member_states counts those beyond it, too.
const maxPeerSeries = 64

// peers renders what nodes say to each other. A member that is gone has no series any more.
func (e *exposition) peers(st node.Stats) {
	e.head("twotier_peer_up", "gauge", "Whether another member answers this node; where it does not, it is done without.")
	for _, l := range st.Links[:min(len(st.Links), maxPeerSeries)] {
		e.sample("twotier_peer_up", whether(l.Up), "peer", l.ID)
	}
	e.head("twotier_forwarded_total", "counter", "Operations sent to the owners of their keys, and served for other nodes.")
	e.sample("twotier_forwarded_total", st.Peers.TasksTotal, "direction", "out")
	e.sample("twotier_forwarded_total", st.ServedTotal, "direction", "in")
	e.total("twotier_peer_messages_total", "Messages to other nodes, those sent again included.", st.Peers.MessagesTotal)
	e.total("twotier_peer_resent_total", "Messages to other nodes that were sent again.", st.Peers.ResentTotal)
	e.total("twotier_peer_failures_total", "Messages to other nodes that got no answer in the end.", st.Peers.FailedTotal)
}

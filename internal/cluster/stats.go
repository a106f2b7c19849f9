package cluster

import "twotier.dev/twotier/syncer"

// Stats is a snapshot of everything a node counts about itself. Fields whose names end in Total
// only grow.
type Stats struct {
	Mode        Mode
	Members     int
	RingVersion uint64
	// TablesTotal is how often the members, or the announcements of one of them, have changed.
	TablesTotal int64
	// States is the number of members in each state.
	States []StateCount
	// Counter is the two-tier counter; zero on a node that only ever counts in Redis.
	Counter syncer.Stats
	Store   StoreHealth
	// Ops is the number of operations by kind and source.
	Ops []OpCount
	// HotKeys is the number of this node's keys that all nodes currently count, LeasedKeys the
	// number of other nodes' keys that this node counts.
	HotKeys, LeasedKeys int
	// RememberedRefusalsTotal is the number of operations that this node refused without asking the
	// owner, because it remembered the owner's last refusal.
	RememberedRefusalsTotal int64
	// Owned is the number of partitions that the table of owners assigns to this node. Held is the
	// number whose counts it has: the partitions that it decides for and the ones that it is
	// handing over.
	Owned, Held int
	Phases      Phases
	Moves       Moves
	// Links is the connectivity to each of the other members.
	Links []Link
	Peers PeerStats
	// ServedTotal is the number of operations that other members forwarded to this node.
	ServedTotal int64
	// ClockOffsetMS, ClockSkewMS and ClockDoubt are as in [View].
	ClockOffsetMS, ClockSkewMS int64
	ClockDoubt                 string
}

// StateCount is the number of members in one state.
type StateCount struct {
	State   State
	Members int
}

// OpCount is the number of operations of one kind that were answered from one source.
type OpCount struct {
	Op, Source string
	Total      int64
}

// Phases is the number of partitions in each phase of ownership on one node. The others belong to
// other nodes and are not on their way here.
type Phases struct {
	// Own are decided here. Incoming are this node's by the table of owners, but it is still
	// fetching their state.
	Own, Incoming int
	// Outgoing are another node's by the table, but still decided here until that node requests
	// them. Moving are being handed over right now.
	Outgoing, Moving int
}

// Moves counts the partitions that changed hands since the node started, by the kind of move.
type Moves struct {
	// Taken received their state from another node; Given were sent to another node.
	Taken, Given int64
	// FromStore started from the state in the store because no node handed them over.
	FromStore int64
	// Abandoned were given up without a complete handover, so the next owner starts from the store.
	Abandoned int64
	// TakenBack were to be handed over but stayed.
	TakenBack int64
}

// Link is a node's connectivity to another member.
type Link struct {
	ID string
	// Up is false while the member does not answer, and operations on its keys fall back.
	Up bool
}

// PeerStats is the traffic from this node to other members.
type PeerStats struct {
	// MessagesTotal is the number of messages sent, and ResentTotal the repetitions among them.
	// FailedTotal messages never got an answer, probes of a silent member included.
	MessagesTotal, ResentTotal, FailedTotal int64
	// TasksTotal is the number of operations in these messages.
	TasksTotal int64
	// Silent names the member processes that currently do not answer.
	Silent []string
}

package cluster

import (
	"time"

	"twotier.dev/twotier/syncer"
)

// Mode is how a cluster counts.
type Mode string

// The modes.
const (
	// TwoTier counts in memory and flushes to the store.
	TwoTier Mode = "two-tier"
	// Redis runs every operation as a script in Redis.
	Redis Mode = "redis"
)

// State is the state of a member.
type State string

// The states of a member.
const (
	Alive State = "alive"
	// Suspect: it does not answer this node, but has not been declared dead.
	Suspect State = "suspect"
	// Leaving: it is handing over its partitions.
	Leaving State = "leaving"
	// Starting: it does not serve requests yet.
	Starting State = "starting"
)

// View is the cluster as one node sees it.
type View struct {
	Mode Mode `json:"mode"`
	// RingVersion identifies the table of owners. Nodes with the same members have the same one.
	RingVersion uint64 `json:"ring_version"`
	Partitions  int    `json:"partitions"`
	// Held is as in [Stats].
	Held    int      `json:"held"`
	Members []Member `json:"members"`
	// Owners has, for every partition, the index in Members of its owner. HashSeed is the seed of
	// the hash that maps keys to partitions. Both are only set on request.
	Owners   []int   `json:"owners,omitempty"`
	HashSeed *uint64 `json:"hash_seed,omitempty"`
	// HashTags maps the names of namespaces to whether they have hash tags; it is nil if none has.
	// A namespace that is missing here is like the default one.
	HashTags map[string]bool `json:"hash_tags,omitempty"`
	Store    StoreHealth     `json:"redis"`
	// ClockOffsetMS is the store's clock minus this machine's clock, and ClockSkewMS the part of it
	// that this node does not follow yet.
	ClockOffsetMS int64 `json:"clock_offset_ms"`
	ClockSkewMS   int64 `json:"clock_skew_ms"`
	// ClockDoubt is the reason why the node distrusts its time, empty if it trusts it.
	ClockDoubt string `json:"clock_doubt,omitempty"`
	// HotKeys is the number of this node's keys whose remaining limits it lends to other nodes.
	// LeasedKeys is the number of other nodes' keys that this node borrows. StaleAfterMS bounds how
	// far a decision made in place of another node lags behind the counts of other nodes.
	HotKeys        int   `json:"hot_keys"`
	LeasedKeys     int   `json:"leased_keys"`
	StaleAfterMS   int64 `json:"stale_after_ms"`
	PendingBuckets int64 `json:"pending_buckets"`
	Keys           int64 `json:"keys"`
	MemoryBytes    int64 `json:"memory_bytes"`
	MaxMemory      int64 `json:"max_memory_bytes"`
}

// Member is one node of the cluster.
type Member struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	State   State  `json:"state"`
	// Self is true for the node whose view this is.
	Self bool `json:"self"`
	// Partitions is the number of partitions it owns, and Share that number divided by all.
	Partitions int     `json:"partitions"`
	Share      float64 `json:"share"`
	// Mode is the member's mode, empty if unknown. Started is when its process began, in unix
	// milliseconds.
	Mode    Mode  `json:"mode,omitempty"`
	Started int64 `json:"started,omitempty"`
	// Status is the member's own report; nil if it was not requested or did not arrive.
	Status *Status `json:"status,omitempty"`
}

// Status is a member's report about itself. Fields whose JSON names end in _total only grow.
type Status struct {
	// Version is the version of the program, empty if unknown.
	Version     string `json:"version,omitempty"`
	Mode        Mode   `json:"mode"`
	RingVersion uint64 `json:"ring_version"`
	// Held is as in [Stats]; Incoming, Outgoing and Moving are as in [Phases].
	Held     int `json:"held"`
	Incoming int `json:"incoming"`
	Outgoing int `json:"outgoing"`
	Moving   int `json:"moving"`
	// Taken and Given are as in [Moves].
	Taken          int64 `json:"taken_total"`
	Given          int64 `json:"given_total"`
	PendingBuckets int64 `json:"pending_buckets"`
	Keys           int64 `json:"keys"`
	MemoryBytes    int64 `json:"memory_bytes"`
	StoreUp        bool  `json:"redis_up"`
	// Ops is the number of client operations that this member answered. Of those, Forwarded were
	// answered by the owner of the key, and Fallback in place of an owner that did not answer.
	// Served is the number of operations that other members forwarded to it.
	Ops       int64 `json:"ops_total"`
	Forwarded int64 `json:"forwarded_total"`
	Fallback  int64 `json:"fallback_total"`
	Served    int64 `json:"served_total"`
	// UnflushedAgeMS is the age of the oldest count that the store has not acknowledged. MaxLagMS
	// is its bound, 0 if there is none. Because of that bound, Waiting operations wait and Behind
	// operations were refused.
	UnflushedAgeMS int64 `json:"unflushed_age_ms"`
	MaxLagMS       int64 `json:"max_lag_ms"`
	Waiting        int64 `json:"waiting"`
	Behind         int64 `json:"behind_total"`
	// Latency is the duration of the decisions requested from this member; nil if unknown.
	Latency *Latency `json:"latency,omitempty"`
}

// Latency is a histogram. Its counts only grow.
type Latency struct {
	// Bounds are the upper bounds of all buckets but the last, which has none, in seconds, and
	// Counts the number of observations in each.
	Bounds []float64 `json:"bounds"`
	Counts []int64   `json:"counts"`
}

// StoreHealth is the condition of a node's store.
type StoreHealth struct {
	// Kind is "embedded", "redis", "redis-cluster" or "redis-sentinel". Address is the store's
	// address, without credentials.
	Kind    string `json:"kind"`
	Address string `json:"address,omitempty"`
	Up      bool   `json:"up"`
	// Fatal is true if the store can't be used as it is configured: waiting won't bring it up.
	Fatal bool `json:"-"`
	// Error is the reason why the store is not up.
	Error string `json:"error,omitempty"`
	// RTTMicros is the shortest round trip of the last probe, in microseconds.
	RTTMicros int64 `json:"rtt_us"`
	// RoundTrips is the number of exchanges with the store so far.
	RoundTrips int64 `json:"round_trips"`
	// Durations is the duration of exchanges that read or wrote counts.
	Durations Durations `json:"-"`
}

// Durations is a snapshot of a histogram, in the buckets of a Prometheus native histogram of
// schema 3: the upper bound of bucket i is 2^(i/8) seconds.
type Durations struct {
	// Count is the number of observations and Sum their total.
	Count uint64
	Sum   time.Duration
	// Buckets has the number of observations of every bucket that is not empty.
	Buckets map[int]int64
}

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

// HeldCount is the number of partitions whose state is on the node.
func (p Phases) HeldCount() int { return p.Own + p.Outgoing + p.Moving }

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

// EventKind is the kind of an [Event].
type EventKind string

// The kinds of events.
const (
	// Started: the event is about the node that saw it.
	Started EventKind = "started"
	Joined  EventKind = "joined"
	// Draining: a member has announced its departure. Left follows; Crashed is a member that
	// disappeared without an announcement.
	Draining EventKind = "draining"
	Left     EventKind = "left"
	Crashed  EventKind = "crashed"

	ModeChanged  EventKind = "mode"
	RulesChanged EventKind = "rules"
	// DataLost: the store had lost counts, which were restored from memory.
	DataLost EventKind = "redis-data-lost"
)

// The kinds of events that begin and end a condition.
const (
	// Silent: a member does not answer this node. It has not been declared dead.
	Silent, Answering          EventKind = "silent", "answering"
	StoreLost, StoreBack       EventKind = "redis-lost", "redis-back"
	ClockDoubted, ClockTrusted EventKind = "clock-doubted", "clock-trusted"
)

// Event is a change of state that nodes have seen.
type Event struct {
	// At is when the first of Nodes saw it, in unix milliseconds.
	At   int64     `json:"at"`
	Kind EventKind `json:"kind"`
	// Member is the ID of the member concerned, empty if the event is not about one.
	Member string `json:"member,omitempty"`
	// Text describes the event in words.
	Text string `json:"text"`
	// Nodes are the IDs of the nodes that saw the event, sorted.
	Nodes []string `json:"nodes"`
}

// Departed is a former member.
type Departed struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	// Started is when its process began, and At when it disappeared, in unix milliseconds.
	Started int64 `json:"started,omitempty"`
	At      int64 `json:"at"`
	// Why is Left or Crashed.
	Why EventKind `json:"why"`
	// Missing marks a member that crashed within [MissingFor], and that no new member replaces.
	Missing bool `json:"missing,omitempty"`
}

// MissingFor is how long a member that crashed is missing, unless it comes back or a member with
// another ID takes its place.
const MissingFor = 24 * time.Hour

// Events is the recent history of the cluster as its nodes saw it.
type Events struct {
	// Events are sorted, the newest first.
	Events []Event `json:"events"`
	// Departed are the former members, the last to leave first.
	Departed []Departed `json:"departed"`
	// Missing are the members that did not report their events.
	Missing []string `json:"missing,omitempty"`
}

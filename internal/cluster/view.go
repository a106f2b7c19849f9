package cluster

import "time"

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

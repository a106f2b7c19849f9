package node

import (
	"twotier.dev/twotier/internal/durations"
	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/storeclock"
	"twotier.dev/twotier/syncer"
)

// What operations are made of has a name here, so that callers of a node need to know no other
// package.

type (
	// Op is one operation.
	Op = syncer.Op
	// Kind says what an Op does.
	Kind = syncer.Kind
	// Ack says what must have happened before an Op that counts returns.
	Ack = syncer.Ack
	// Check is one key with its limits.
	Check = syncer.Check
	// Limit is one rule.
	Limit = syncer.Limit
	// Result is the outcome of an Op.
	Result = syncer.Result
	// CheckResult is the outcome of one check.
	CheckResult = syncer.CheckResult
	// LimitResult is what is known of one limit.
	LimitResult = syncer.LimitResult
	// Source says where an answer came from.
	Source = syncer.Source
	// Point is one bucket of a series.
	Point = syncer.Point
	// KeyCount is one row of the busiest keys.
	KeyCount = syncer.KeyCount
	// CounterStats are the figures of the two-tier counter.
	CounterStats = syncer.Stats
	// Phases is how many partitions are in which phase.
	Phases = ownership.Phases
	// Moves is how many have changed hands.
	Moves = ownership.Moves
	// InvalidError refuses an operation because of one of its fields.
	InvalidError = syncer.InvalidError
)

// The values of the aliased types that callers need.
const (
	Add     = syncer.Add
	Count   = syncer.Count
	Acquire = syncer.Acquire

	AckDefault = syncer.AckDefault
	AckMemory  = syncer.AckMemory
	AckStore   = syncer.AckStore
	AckReplica = syncer.AckReplica
	AckDisk    = syncer.AckDisk

	SourceMemory   = syncer.SourceMemory
	SourceOwner    = syncer.SourceOwner
	SourceShared   = syncer.SourceShared
	SourceNear     = syncer.SourceNear
	SourceRedis    = syncer.SourceRedis
	SourceFallback = syncer.SourceFallback
	SourceDegraded = syncer.SourceDegraded
)

// The errors of operations, as in package syncer.
var (
	ErrClosed         = syncer.ErrClosed
	ErrUnknownOutcome = syncer.ErrUnknownOutcome
	ErrUnavailable    = syncer.ErrUnavailable
	ErrOverload       = syncer.ErrOverload
	ErrFull           = syncer.ErrFull
	ErrNotOwner       = syncer.ErrNotOwner
)

// Mode says how a node counts.
type Mode = modes.Mode

// The modes.
const (
	// ModeTwoTier counts in memory and flushes to the store.
	ModeTwoTier = modes.TwoTier
	// ModeRedis executes every request as a script in Redis.
	ModeRedis = modes.Redis
)

// Member is one node as seen from this one.
type Member struct {
	ID         string  `json:"id"`
	Address    string  `json:"address"`
	State      string  `json:"state"`
	Self       bool    `json:"self"`
	Partitions int     `json:"partitions"`
	Share      float64 `json:"share"`
	// Mode is how it counts, if that is known; Started when its process began, in unix
	// milliseconds.
	Mode    Mode  `json:"mode,omitempty"`
	Started int64 `json:"started,omitempty"`
	// Status is what it says of itself, if that was asked for, see Node.Survey, and it answered.
	Status *Status `json:"status,omitempty"`
}

// StoreHealth describes the store beneath a node.
type StoreHealth struct {
	// Kind is "embedded", "redis", "redis-cluster" or "redis-sentinel"; Address is where, without
	// credentials.
	Kind    string `json:"kind"`
	Address string `json:"address,omitempty"`
	Up      bool   `json:"up"`
	// Fatal is set if it can't become up by itself: it does not fit.
	Fatal bool `json:"-"`
	// Error is why it is not up.
	Error string `json:"error,omitempty"`
	// RTTMicros is the smallest round trip of the last probe in microseconds.
	RTTMicros int64 `json:"rtt_us"`
	// RoundTrips is the number of exchanges so far.
	RoundTrips int64 `json:"round_trips"`
	// Durations is how long the exchanges took that counted or read counts.
	Durations durations.Snapshot `json:"-"`
}

// ClusterView is the state of the cluster as this node sees it.
type ClusterView struct {
	Mode        Mode   `json:"mode"`
	RingVersion uint64 `json:"ring_version"`
	Partitions  int    `json:"partitions"`
	// Held is the number of partitions that this node decides about at this moment.
	Held    int      `json:"held"`
	Members []Member `json:"members"`
	// Owners is the position among Members of the owner of every partition, and HashSeed the seed
	// of the hash that assigns keys to partitions, if that was asked for.
	Owners   []int       `json:"owners,omitempty"`
	HashSeed *uint64     `json:"hash_seed,omitempty"`
	Store    StoreHealth `json:"redis"`
	// ClockOffsetMS is the store's clock minus this machine's, ClockSkewMS what of it is not
	// followed yet.
	ClockOffsetMS int64 `json:"clock_offset_ms"`
	ClockSkewMS   int64 `json:"clock_skew_ms"`
	// ClockDoubt is why the time can't be believed, empty if it can.
	ClockDoubt storeclock.Doubt `json:"clock_doubt,omitempty"`
	// SpreadKeys is the number of hot keys of this node that every node counts, LeasedKeys of those
	// of others that this one counts. StaleAfterMS is how old the news of what others counted may
	// be that a verdict about one, or in place of another node, is based on.
	SpreadKeys     int   `json:"spread_keys"`
	LeasedKeys     int   `json:"leased_keys"`
	StaleAfterMS   int64 `json:"stale_after_ms"`
	PendingBuckets int64 `json:"pending_buckets"`
	Keys           int64 `json:"keys"`
	MemoryBytes    int64 `json:"memory_bytes"`
	MaxMemory      int64 `json:"max_memory_bytes"`
}

// OpCount is how many operations of one kind were answered from one source.
type OpCount struct {
	Op, Source string
	Total      int64
}

// Stats is a snapshot of everything that the node counts about itself.
type Stats struct {
	Counter     syncer.Stats
	Ops         []OpCount
	Members     int
	RingVersion uint64
	// SpreadKeys is the number of hot keys of this node that every node counts, LeasedKeys of those
	// of others that this one counts.
	SpreadKeys, LeasedKeys int
	// NearTotal counts refusals that this node remembered.
	NearTotal int64
	// Held is the number of partitions that this node decides about, Phases how many there are in
	// which state. Owned is how many the table gives to it, and Moves what has become of those that
	// changed hands.
	Held, Owned int
	Phases      Phases
	Moves       Moves
	// TablesTotal is how often the members, or something about them, have changed, and States how
	// many members are in which state.
	TablesTotal int64
	States      []StateCount
	// Links is how the other members are reached, Peers the traffic with them, and ServedTotal how
	// many operations they sent to this node.
	Links       []Link
	Peers       PeerStats
	ServedTotal int64
	Mode        Mode
	Store       StoreHealth
	// ClockOffsetMS and ClockSkewMS are as in ClusterView.
	ClockOffsetMS, ClockSkewMS int64
	ClockDoubt                 storeclock.Doubt
}

package node

import (
	"twotier.dev/twotier/httpapi/cluster"
	"twotier.dev/twotier/syncer"
)

// The types of operations have names here so that users of a node need no other package.

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
	// LimitResult is what is known about one limit.
	LimitResult = syncer.LimitResult
	// Source says where an answer came from.
	Source = syncer.Source
	// Point is one bucket of a series.
	Point = syncer.Point
	// KeyCount is one row of the busiest keys.
	KeyCount = syncer.KeyCount
	// CounterStats are the figures of the two-tier counter.
	CounterStats = syncer.Stats
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

// The state of a node and its cluster, in the types of the API.

type (
	// Mode is how a cluster counts.
	Mode = cluster.Mode
	// ClusterView is the cluster as this node sees it.
	ClusterView = cluster.View
	// Member is one node as seen from this one.
	Member = cluster.Member
	// Status is what a node reports about itself.
	Status = cluster.Status
	// StoreHealth is the condition of the store.
	StoreHealth = cluster.StoreHealth
	// Stats is a snapshot of everything that a node counts about itself.
	Stats = cluster.Stats
	// PeerStats is the traffic with other nodes.
	PeerStats = cluster.PeerStats
)

// The modes, and the states of a member.
const (
	ModeTwoTier = cluster.TwoTier
	ModeRedis   = cluster.Redis

	StateAlive    = cluster.Alive
	StateSuspect  = cluster.Suspect
	StateLeaving  = cluster.Leaving
	StateStarting = cluster.Starting
)

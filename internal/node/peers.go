package node

import (
	"context"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/backtest"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/distinct"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

// Peers reaches the other nodes. Package peer implements it.
type Peers interface {
	// Do runs tasks in order on another node and sets Err in each result: to that node's own error;
	// to one that wraps rpc.ErrUnreachable, rpc.ErrRefused or rpc.ErrLate if the task was certainly
	// not executed; or to twotier.ErrUnknownOutcome. Tasks are executed at most once, and not after
	// ctx's deadline.
	Do(ctx context.Context, to *ring.Member, tasks []rpc.Task, res []twotier.Result)
	// DoAll does the same for groups of operations of a batch, all groups at the same time. It
	// calls meanwhile once the groups are on their way, and over with the index of each group once
	// its results are set, both on the caller's goroutine.
	DoAll(ctx context.Context, groups []rpc.Group, ops []twotier.Op, res []twotier.Result,
		meanwhile func(), over func(group int))
	// Ask sends a question, a pointer to one of the question types, and fills in the matching
	// answer.
	Ask(ctx context.Context, to *ring.Member, question, answer any) error
	// Keep releases everything held for members that are no longer in the table.
	Keep(t *ring.Table)
	// Stats returns counters of the traffic with the other nodes.
	Stats() cluster.PeerStats
}

// The questions that nodes ask each other, and their answers.
type (
	// PingQuestion asks whether a node is alive. The answer is empty.
	PingQuestion struct{}

	// TopQuestion asks for the busiest keys that a node owns, of some namespaces if there are any.
	TopQuestion struct {
		Limit      int
		Window     int64
		Namespaces []string
	}
	// TopRefusedQuestion asks for the keys with the most refusals among a node's requests.
	TopRefusedQuestion struct {
		Limit  int
		Window int64
	}
	// TopShadowRefusedQuestion asks the same about refusals by rules in shadow.
	TopShadowRefusedQuestion struct {
		Limit  int
		Window int64
	}
	// TopAnswer lists the keys, largest first.
	TopAnswer struct {
		Keys []twotier.KeyCount
	}

	// BansQuestion asks for the bans that a node knows of, see Node.Bans.
	BansQuestion struct {
		NS, Rule string
		Limit    int
	}
	// BansAnswer lists them.
	BansAnswer struct {
		Bans []twotier.Banned
	}

	// SeriesQuestion asks for the buckets of a key that a node owns.
	SeriesQuestion struct {
		NS, Key []byte
		Window  int64
	}
	// SeriesAnswer lists the buckets, oldest first.
	SeriesAnswer struct {
		BucketMS int64
		Points   []twotier.Point
	}

	// EventsQuestion asks for the events that a node has seen. The answer is its cluster.Events.
	EventsQuestion struct{}

	// ReplayQuestion asks for the effect of lists of limits on keys that a node owns.
	ReplayQuestion struct{ backtest.Ask }
	// ReplayAnswer holds the outcomes of each key, none for a key that could not be read.
	ReplayAnswer struct{ Outcomes [][]backtest.Outcome }

	// DistinctQuestion asks for an operation on distinct values. It may be sent again: adding a
	// value twice changes nothing.
	DistinctQuestion struct{ Op distinct.Op }
	// DistinctAnswer holds its result.
	DistinctAnswer struct{ Result distinct.Result }

	// DistinctListQuestion asks for several operations on distinct values, in order per key.
	DistinctListQuestion struct{ Ops []distinct.Op }
	// DistinctListAnswer holds the outcome of each operation. If one was not run, its error is
	// twotier.ErrNotOwner, as is the error of all later operations on the same key.
	DistinctListAnswer struct{ Parts []DistinctPart }
	// DistinctPart is the outcome of one operation.
	DistinctPart struct {
		Result distinct.Result
		Err    error
	}

	// DistinctPendingQuestion asks for a node's unflushed distinct values of partitions that it no
	// longer decides about.
	DistinctPendingQuestion struct{ Partitions []int }
	// DistinctPendingAnswer lists them.
	DistinctPendingAnswer struct{ Keys []distinct.Pending }

	// DistinctHandover passes on the unflushed distinct values of a node that is about to stop.
	DistinctHandover struct{ Keys []distinct.Pending }

	// DistinctReset announces a reset of a key's distinct values that the store has made, or may
	// have made. It may be sent again.
	DistinctReset struct {
		NS, Key []byte
		distinct.Reset
	}

	// StatusQuestion asks for a node's Status.
	StatusQuestion struct{}
)

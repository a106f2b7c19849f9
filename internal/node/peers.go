package node

import (
	"context"

	"twotier.dev/twotier/distinct"
	"twotier.dev/twotier/httpapi/backtest"
	"twotier.dev/twotier/httpapi/cluster"
	"twotier.dev/twotier/httpapi/rule"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// Peers reaches the other nodes. Package peer implements it.
type Peers interface {
	// Do runs tasks in order on another node and sets Err in each result: to that node's own error;
	// to one that wraps rpc.ErrUnreachable, rpc.ErrRefused or rpc.ErrLate if the task was certainly
	// not executed; or to syncer.ErrUnknownOutcome. Tasks are executed at most once, and not after
	// ctx's deadline.
	Do(ctx context.Context, to *ring.Member, tasks []rpc.Task, res []syncer.Result)
	// DoAll does the same with groups of operations of a batch, and sets their results, all groups
	// at the same time. It calls meanwhile once they are on their way, and over with the index of
	// each group once its results are set, both from its caller's goroutine.
	DoAll(ctx context.Context, groups []rpc.Group, ops []syncer.Op, res []syncer.Result,
		meanwhile func(), over func(group int))
	// Ask sends a question, a pointer to one of the question types, and fills in the matching
	// answer.
	Ask(ctx context.Context, to *ring.Member, question, answer any) error
	// Keep releases everything that is kept for members no longer in the table.
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
	// TopRefusedQuestion asks for the keys of which a node was told the most refusals.
	TopRefusedQuestion struct {
		Limit  int
		Window int64
	}
	// TopShadowRefusedQuestion asks the same of refusals by rules in shadow.
	TopShadowRefusedQuestion struct {
		Limit  int
		Window int64
	}
	// TopAnswer has them, largest first.
	TopAnswer struct {
		Keys []syncer.KeyCount
	}

	// BansQuestion asks for the bans that a node knows of, see Node.Bans.
	BansQuestion struct {
		NS, Rule string
		Limit    int
	}
	// BansAnswer has them.
	BansAnswer struct {
		Bans []rule.Banned
	}

	// SeriesQuestion asks for the buckets of a key that a node owns.
	SeriesQuestion struct {
		NS, Key []byte
		Window  int64
	}
	// SeriesAnswer has them, oldest first.
	SeriesAnswer struct {
		BucketMS int64
		Points   []syncer.Point
	}

	// EventsQuestion asks for what a node has seen, its cluster.Events.
	EventsQuestion struct{}

	// ReplayQuestion asks what lists of limits make of keys that a node owns.
	ReplayQuestion struct{ backtest.Ask }
	// ReplayAnswer has that for each key, nothing for one that could not be read.
	ReplayAnswer struct{ Outcomes [][]backtest.Outcome }

	// DistinctQuestion asks for an operation on distinct values. It may be asked again: what was
	// added already is not added twice.
	DistinctQuestion struct{ Op distinct.Op }
	// DistinctAnswer has its result.
	DistinctAnswer struct{ Result distinct.Result }

	// DistinctListQuestion asks for several operations on distinct values, those on one key in
	// their order.
	DistinctListQuestion struct{ Ops []distinct.Op }
	// DistinctListAnswer has what came of each. The error is syncer.ErrNotOwner where it was not
	// run, and those behind it on the same key were not either.
	DistinctListAnswer struct{ Parts []DistinctPart }
	// DistinctPart is what came of one.
	DistinctPart struct {
		Result distinct.Result
		Err    error
	}

	// DistinctPendingQuestion asks for what a node has of the distinct values of some partitions,
	// about which it does not decide any more, and the store may lack.
	DistinctPendingQuestion struct{ Partitions []int }
	// DistinctPendingAnswer has it.
	DistinctPendingAnswer struct{ Keys []distinct.Pending }

	// DistinctHandover passes on what a node that is about to stop has of distinct values, and the
	// store may lack.
	DistinctHandover struct{ Keys []distinct.Pending }

	// DistinctReset tells of a reset of a key's distinct values, which the store has, or may have.
	// It may be told again.
	DistinctReset struct {
		NS, Key []byte
		distinct.Reset
	}

	// StatusQuestion asks for a node's Status.
	StatusQuestion struct{}
)

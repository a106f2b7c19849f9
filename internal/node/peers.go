package node

import (
	"context"

	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

// Peers reaches the other nodes. Package peer implements it.
type Peers interface {
	// Do has another node carry out tasks in order and sets Err in each result: what that node
	// says, or an error wrapping rpc.ErrUnreachable, rpc.ErrRefused or rpc.ErrLate if it has
	// certainly not carried them out, or syncer.ErrUnknownOutcome. Tasks are carried out at most
	// once, and not after the deadline of ctx.
	Do(ctx context.Context, to *ring.Member, tasks []rpc.Task, res []Result)
	// Ask puts a question, a pointer to one of the question types, and fills in the answer that
	// belongs to it.
	Ask(ctx context.Context, to *ring.Member, question, answer any) error
	// Keep lets go of all that is kept for members that are not in the table any more.
	Keep(t *ring.Table)
	// Stats returns what is known of the traffic with the others.
	Stats() PeerStats
}

// The questions that nodes put to each other, and what is answered.
type (
	// PingQuestion asks whether a node is there. The answer is nothing.
	PingQuestion struct{}

	// TopQuestion asks for the busiest keys that a node owns.
	TopQuestion struct {
		Limit  int
		Window int64
	}
	// TopAnswer has them, busiest first.
	TopAnswer struct {
		Keys []KeyCount
	}

	// SeriesQuestion asks for the buckets of a key that a node owns.
	SeriesQuestion struct {
		NS, Key []byte
		Window  int64
	}
	// SeriesAnswer has them, oldest first.
	SeriesAnswer struct {
		BucketMS int64
		Points   []Point
	}

	// StatusQuestion asks a node how it is. The answer is a Status.
	StatusQuestion struct{}
)

package node

import (
	"context"

	"twotier/internal/rpc"
	"twotier/ring"
	"twotier/syncer"
)

// Peers reaches the other nodes. Package peer implements it.
type Peers interface {
	// Do has another node carry out tasks in order and sets Err in each result: what that node says, or an error wrapping
	// rpc.ErrUnreachable, rpc.ErrRefused or rpc.ErrLate if it has certainly not carried them out, or syncer.ErrUnknownOutcome. Tasks
	// are carried out at most once, and not after the deadline of ctx.
	Do(ctx context.Context, to *ring.Member, tasks []rpc.Task, res []Result)
	// Ask puts a question, a pointer to one of the question types, and fills in the answer that belongs to it.
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

	// HoldingsQuestion asks which of some partitions a node has and could hand over.
	HoldingsQuestion struct {
		Partitions []int
	}
	// HoldingsAnswer has those that it has. Later is set while it can't tell, because the mode is being changed: what it has counted may
	// not be in the store yet.
	HoldingsAnswer struct {
		Held  []int
		Later bool
	}

	// ClaimQuestion asks for partitions that the asking node owns from now on, and says which it has taken over in full, and which
	// it does not want any more.
	ClaimQuestion struct {
		By      ring.Member
		Parts   []ClaimPart
		Taken   []int
		Refused []int
	}
	// ClaimPart asks for a partition, from a page on.
	ClaimPart struct {
		Partition int
		Cursor    uint64
	}
	// ClaimAnswer has a page of each partition that was asked for, as far as it fits.
	ClaimAnswer struct {
		Pages []ClaimPage
	}
	// ClaimPage is one page of a partition.
	ClaimPage struct {
		Partition int
		State     ClaimState
		// Next is the cursor of the next page, 0 after the last.
		Next     uint64
		Handover *syncer.Handover
	}

	// OfferQuestion says that a node has partitions that the one which is told owns. The answer is nothing.
	OfferQuestion struct {
		By         ring.Member
		Partitions []int
	}

	// OutcomeQuestion asks the decider whether a reservation was confirmed. If that is still open, it no longer can be.
	OutcomeQuestion struct {
		Hold string
	}
	// OutcomeAnswer says whether it was.
	OutcomeAnswer struct {
		Confirmed bool
	}

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

// ClaimState says what becomes of a claim.
type ClaimState uint8

// The states of a claim.
const (
	// ClaimGiven: here is a page.
	ClaimGiven ClaimState = iota
	// ClaimNone: the node does not have the partition.
	ClaimNone
	// ClaimLater: the node still decides about it, and takes itself, or a third, for the owner.
	ClaimLater
	// ClaimAgain: what it told so far is out of date; it is to be asked from the beginning.
	ClaimAgain
)

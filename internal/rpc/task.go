package rpc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/trace"
	"twotier.dev/twotier/ring"
)

// Verb is the kind of a [Task].
type Verb uint8

// The verbs. Their numbers are part of the wire format.
const (
	// VerbDo runs an operation.
	VerbDo Verb = iota
	// VerbReserve decides a part of an Acquire and reserves the amounts that it admits.
	VerbReserve
	// VerbConfirm counts a reservation.
	VerbConfirm
	// VerbUndo gives up a reservation.
	VerbUndo
	// VerbReset forgets a key.
	VerbReset
	// VerbDrop forgets a node's state of a key that another node resets, including counts that the
	// store does not have.
	VerbDrop
	// VerbDecide runs the last part of an Acquire: if it is admitted, the whole Acquire is.
	VerbDecide
	// VerbCompare decides a part of an Acquire, and neither counts nor reserves.
	VerbCompare
	// VerbCoordinate runs an Acquire over several owners, one of which is the receiver.
	VerbCoordinate
)

// IsStep reports whether a verb is a step of an acquire over several owners, see package
// multiowner.
func (v Verb) IsStep() bool {
	switch v {
	case VerbReserve, VerbDecide, VerbCompare, VerbConfirm, VerbUndo:
		return true
	}
	return false
}

// Task is one node's request to another about keys that the other one owns.
type Task struct {
	Verb Verb
	// Op is the operation of VerbDo, VerbCoordinate, VerbReserve, VerbDecide and VerbCompare. For
	// other verbs that concern a key, the key is in Op.Checks[0]. VerbConfirm uses Op.Ack.
	Op twotier.Op
	// Acquire is the acquire that a step belongs to.
	Acquire AcquireID
	// Decider is the name of the member that will receive VerbDecide. Only VerbReserve has it.
	Decider string
	// Settled means that all acquires of the same coordinator with lower numbers are settled: no
	// node will ask for their outcomes. Only VerbDecide has it.
	Settled uint64
	// Trace is the trace that the task belongs to, nil if none. A node that runs VerbCoordinate
	// passes it on.
	Trace *trace.Context
}

// AcquireID identifies an acquire over several owners.
type AcquireID struct {
	// Coordinator is the name of the member that runs the acquire.
	Coordinator string
	// Number is unique among the coordinator's acquires, and higher than the numbers of earlier
	// ones.
	Number uint64
}

// String returns the coordinator and the number.
func (id AcquireID) String() string {
	return id.Coordinator + "/" + strconv.FormatUint(id.Number, 10)
}

// Group holds the operations of a batch that one node runs.
type Group struct {
	To *ring.Member
	At []int // positions in the batch
}

// Asker sends requests to the other nodes.
type Asker interface {
	// Ask sends a request to another node and fills in its response, if there is one. The error
	// wraps ErrUnreachable if the node can't be reached.
	Ask(ctx context.Context, to *ring.Member, request, response any) error
}

// Broadcast calls fn concurrently for every member of a table except this node, and returns when
// all calls have returned. Their context is done after timeout.
func Broadcast(
	ctx context.Context, t *ring.Table, timeout time.Duration,
	fn func(ctx context.Context, m *ring.Member),
) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var done sync.WaitGroup
	for i := range t.Len() {
		if i != t.Self() {
			done.Go(func() { fn(ctx, t.Member(i)) })
		}
	}
	done.Wait()
}

// The reasons why another node has certainly not run a task.
var (
	// ErrUnreachable means that the node can't be reached: its address refuses connections, or it
	// has left several messages unanswered. It is the only reason to count in the node's place.
	ErrUnreachable = errors.New("the node can't be reached")
	// ErrRefused means that the node answered but does not accept the task, because it is closing
	// or does not know this node. It matches twotier.ErrNotOwner: another node may decide.
	ErrRefused error = refusal{}
	// ErrLate means that the task's deadline passed before it was sent, or before it arrived. The
	// node may be fine.
	ErrLate = fmt.Errorf("%w: the time for it was up before another node could be told",
		twotier.ErrUnavailable)
)

// refusal is the type of ErrRefused.
type refusal struct{}

func (refusal) Error() string { return "the node does not take it" }

// Is makes a refusal an ErrNotOwner.
func (refusal) Is(target error) bool { return target == twotier.ErrNotOwner }

// MovedError means that the node did nothing because another node owns the key.
type MovedError struct{ To ring.Member }

// Error names the owner.
func (e *MovedError) Error() string {
	return fmt.Sprintf("node %s decides about this key", e.To.ID)
}

// Is makes a MovedError a twotier.ErrNotOwner.
func (e *MovedError) Is(target error) bool { return target == twotier.ErrNotOwner }

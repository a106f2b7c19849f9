package rpc

import (
	"errors"
	"fmt"

	"twotier.dev/twotier"
	"twotier.dev/twotier/ring"
)

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

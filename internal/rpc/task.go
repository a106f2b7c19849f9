package rpc

import (
	"strconv"

	"twotier.dev/twotier/internal/trace"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// Verb says what a [Task] asks for.
type Verb uint8

// The verbs. Their numbers are part of the wire format.
const (
	// VerbDo runs an operation.
	VerbDo Verb = iota
	// VerbReserve decides a part of an Acquire and reserves what it admits.
	VerbReserve
	// VerbConfirm counts what was reserved.
	VerbConfirm
	// VerbUndo gives up a reservation.
	VerbUndo
	// VerbReset forgets a key.
	VerbReset
	// VerbDrop forgets what a node knows about a key that another node resets, including counts
	// that the store does not have.
	VerbDrop
	// VerbDecide runs the last part of an Acquire: if it is admitted, the whole Acquire is.
	VerbDecide
	// VerbCompare decides a part of an Acquire, and neither counts nor reserves.
	VerbCompare
	// VerbCoordinate runs an Acquire over several owners, one of which is the node that is asked.
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

// Task is what one node asks another to do about keys that the other one owns.
type Task struct {
	Verb Verb
	// Op is the operation of VerbDo, VerbCoordinate, VerbReserve, VerbDecide and VerbCompare. For
	// other verbs that concern a key, the key is in Op.Checks[0]. VerbConfirm uses Op.Ack.
	Op syncer.Op
	// Acquire is the one that a step belongs to.
	Acquire AcquireID
	// Decider is the name of the member that VerbDecide will be sent to. Only VerbReserve has it.
	Decider string
	// Settled says that all acquires of the same coordinator with lower numbers are settled: nobody
	// will ask what became of them. Only VerbDecide has it.
	Settled uint64
	// Trace is what the task is part of, nil if it is part of no trace. Whoever runs a
	// VerbCoordinate passes it on.
	Trace *trace.Context
}

// AcquireID identifies an acquire over several owners.
type AcquireID struct {
	// Coordinator is the name of the member that runs it.
	Coordinator string
	// Number is unique among the coordinator's acquires, and higher than those of earlier ones.
	Number uint64
}

// String returns the coordinator and the number.
func (id AcquireID) String() string {
	return id.Coordinator + "/" + strconv.FormatUint(id.Number, 10)
}

// Group is the operations of a batch that one node runs.
type Group struct {
	To *ring.Member
	At []int // positions in the batch
}

package rpc

import "twotier.dev/twotier/syncer"

// Verb says what a [Task] asks for.
type Verb uint8

// The verbs. Their numbers are part of the wire format.
const (
	// VerbDo runs an operation.
	VerbDo Verb = iota
	// VerbReserve decides an Acquire and reserves what it admits, see syncer.Counter.Reserve.
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
)

// Task is what one node asks another to do about keys that the other one owns.
type Task struct {
	Verb Verb
	// Op is the operation of VerbDo and VerbReserve. For other verbs that concern a key, the key is
	// in Op.Checks[0]. VerbConfirm uses Op.Ack.
	Op syncer.Op
	// Reservation is the one that VerbReserve, VerbConfirm and VerbUndo refer to.
	Reservation string
	// Coordinator is the name of the member that records whether the reservation was confirmed.
	Coordinator string
}

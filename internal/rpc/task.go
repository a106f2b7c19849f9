package rpc

import "twotier.dev/twotier/syncer"

// Verb says what a [Task] asks for.
type Verb uint8

// The verbs. Their numbers are part of the wire format.
const (
	// VerbDo carries out an operation.
	VerbDo Verb = iota
	// VerbReserve decides an Acquire and reserves what it admits, see syncer.Counter.Reserve.
	VerbReserve
	// VerbConfirm counts what was reserved.
	VerbConfirm
	// VerbUndo gives up a reservation.
	VerbUndo
	// VerbReset forgets a key.
	VerbReset
	// VerbDrop forgets what a node knows of a key that another one resets, and what it has counted
	// of it that the store does not have.
	VerbDrop
)

// Task is what one node asks another to do about keys that the other owns.
type Task struct {
	Verb Verb
	// Op is the operation of VerbDo and VerbReserve. The other verbs that are about a key have it
	// in Op.Checks[0]. Op.Ack counts for VerbConfirm too.
	Op syncer.Op
	// Reservation is the one that VerbReserve, VerbConfirm and VerbUndo are about.
	Reservation string
	// Coordinator is the name of the member that records whether the reservation was confirmed.
	Coordinator string
}

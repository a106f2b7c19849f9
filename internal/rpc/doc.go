// Package rpc is what one node asks another to do about keys, and why the other has not done it.
//
// A [Task] is an operation for the owner of its keys, or one step of an acquire over several
// owners. Its outcome is one of four, and they are never confused: the other node's own answer or
// error; certainly not carried out ([ErrUnreachable], [ErrRefused], [ErrLate], a [MovedError]); and
// syncer.ErrUnknownOutcome. Requests that are not about single keys are declared by the packages
// whose they are: ownership, hotkeys, modes, multiowner.
//
// How a task travels is none of its business: package peer has the wire format.
package rpc

// Package rpc declares what one node asks another to do about keys, and the reasons why the other
// node did not do it.
//
// A [Task] is an operation for the owner of its keys, or one step of an acquire over several
// owners. It has one of three kinds of outcome, which are never confused: the other node's answer
// or error; certainly not executed ([ErrUnreachable], [ErrRefused], [ErrLate], or a [MovedError]);
// and syncer.ErrUnknownOutcome. Requests that are not about single keys are declared by the
// packages that handle them: ownership, hotkeys, modes and multiowner.
//
// How a task travels is up to package peer, which has the wire format.
package rpc

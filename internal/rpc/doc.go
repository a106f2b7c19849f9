// Package rpc declares the tasks on keys that one node sends to another, and the errors for tasks
// that were not done.
//
// A [Task] is an operation for the owner of its keys, or one step of an acquire over several
// owners. It has one of three kinds of outcome, which are never confused: the other node's answer
// or error; certainly not executed ([ErrUnreachable], [ErrRefused], [ErrLate], or a [MovedError]);
// and twotier.ErrUnknownOutcome. Requests that are not about single keys are declared by the
// packages that handle them: ownership, hotkeys, modes and multiowner.
//
// Package peer carries the tasks and defines their wire format.
package rpc

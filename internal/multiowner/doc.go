// Package multiowner runs an acquire whose keys have several owners, all or nothing.
//
// It takes two steps. First, each owner decides about its part and reserves what it admits. Then,
// if all of them admitted, they are told to confirm, otherwise to undo. One of the owners is the
// coordinator. It is told before the others, and the acquire happened if and only if the
// coordinator confirmed. If the node that runs the acquire dies in between or is cut off, the other
// owners ask the coordinator. Asking before it has confirmed makes it undo, so nobody waits for
// long.
//
// Reservations count in other decisions. Another acquire may be refused because of a reservation
// that is undone later, but none is ever admitted in excess of a limit.
//
// An [Acquirer] runs acquires; a [Participant] runs on each node that owns some of the keys. Both
// are safe for concurrent use. Neither knows the owners of keys: their callers pass them in.
package multiowner

// Package multiowner carries out an acquire whose keys have several owners: all or nothing.
//
// It takes two steps. First each owner decides its part and reserves what it admits. If all do they
// are told to count it, or else to undo it. One of the owners is the coordinator: it is told before
// the others, and whether it confirmed decides whether the acquire happened. If the node that runs
// the acquire dies in between, or is cut off, the others ask the coordinator. Who asks before it
// has confirmed makes it undo: nobody waits for long.
//
// Reservations stand in the way of other decisions. Those may be refused because of a reservation
// that is undone in the end, but never is one too many let through.
//
// An [Acquirer] runs acquires, a [Participant] is the part of a node that owns some of the keys.
// Both may be used by several goroutines. They know nothing of who owns what: that is told them.
package multiowner

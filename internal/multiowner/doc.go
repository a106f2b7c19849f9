// Package multiowner runs an acquire whose keys have several owners, all or nothing.
//
// The last owner decides. All other owners reserve what their parts admit. If all of them admit,
// the last one, the decider, receives its part as an ordinary acquire: its count decides about the
// whole acquire, and the other owners then confirm or undo their reservations. The node that runs
// the acquire, the coordinator, is mostly one of the owners and reserves in its own memory. So an
// acquire over its own keys and the keys of one other node costs one message.
//
// # Silent nodes
//
// Each reservation names its decider. The decider remembers every acquire that it has counted until
// the coordinator reports it as settled: all owners know the outcome, or can ask the coordinator,
// which remembers outcomes that did not reach every owner. An owner without news for a while asks
// the decider, and the coordinator if the decider is gone or has forgotten the acquire. A decider
// that has never received the acquire answers that it is not carried out, and refuses it from then
// on, so that a late message can't make the answer wrong. Only the process that decides knows the
// outcome, wherever its partitions have moved. So before it leaves the cluster, it sends its
// decisions to all members, which settle their remaining reservations ([Participant.Leave]).
//
// # Doubt
//
// If neither knows the outcome, or none has been reached in ten seconds, the reservation is
// counted: the decider may have counted its part, and no limit is exceeded if it has not. The
// caller of such an acquire gets twotier.ErrUnknownOutcome. So does the caller of an acquire that
// the coordinator gave up but could not undo before an owner counted: that owner reports the count
// to the coordinator, which would otherwise begin again elsewhere.
//
// A decider that was given up may only have stood still. So owners that have counted in doubt keep
// asking. If the acquire was not carried out, each takes back its counts: at once while it owns the
// keys and can reach the store, and otherwise 15 seconds later, when a new owner has received them.
// The coordinator settles the number only after that, so that the decider remembers. Numbers are
// settled for each decider: acquires in doubt hold up no other decider. All of this is forgotten
// after ten minutes, or if there is too much of it; then the counts stay.
//
// If decider and coordinator have died, the outcome may have reached some owners already: this is
// the one case in which parts of an acquire are counted without other parts whose owners are alive.
//
// Reservations count in other decisions. Another acquire may be refused because of a reservation
// that is undone later, but none is ever admitted in excess of a limit.
//
// An [Acquirer] runs acquires; a [Participant] runs on each node that owns some of the keys. Both
// are safe for concurrent use. Neither knows the owners of keys: their callers pass them in.
package multiowner

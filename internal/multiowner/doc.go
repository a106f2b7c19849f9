// Package multiowner runs an acquire whose keys have several owners, all or nothing.
//
// The last owner decides. All other owners reserve what their parts admit. If all of them do, the
// last one, the decider, is sent its part as an ordinary acquire: whether it counts decides about
// the whole, and the others then confirm or undo their reservations. The node that runs the
// acquire, the coordinator, is mostly one of the owners and reserves in its own memory. So an
// acquire over its own keys and those of one other node costs one message.
//
// # What a silent node leaves behind
//
// Each reservation says who decides. The decider remembers every acquire that it has counted until
// the coordinator says that it is settled: all owners know, or may ask the coordinator, which
// remembers the outcomes of which it could not tell everybody. An owner that is told nothing for a
// while asks the decider, and the coordinator if the decider is gone or has forgotten the acquire.
// A decider that has not heard of the acquire answers that it is not carried out, and from then on
// refuses it, so that a late message can't make that wrong. Only the process that decides knows the
// outcome, wherever its partitions have gone. So before it leaves the cluster, it tells all members
// what it has decided, and has them settle what they still have reserved ([Participant.Leave]).
//
// # Doubt
//
// If neither knows the outcome, or none has been reached in ten seconds, what is reserved is
// counted: the decider may have counted its part, and no limit is exceeded if it has not. The
// caller of such an acquire gets syncer.ErrUnknownOutcome, also when the coordinator had given it
// up but could not say so before an owner counted: that owner tells the coordinator, which would
// otherwise begin again elsewhere.
//
// A decider that was given up may only have stood still. So those that have counted in doubt keep
// asking. If the acquire was not carried out, each takes back its counts: at once while it owns the
// keys and can reach the store, and otherwise 15 seconds later, when a new owner knows of them. The
// coordinator settles the number only after that, so that the decider remembers. Numbers are
// settled for each decider: those in doubt hold up no other one. All of this is forgotten after ten
// minutes, or if there is too much of it; then what is counted stays so.
//
// If decider and coordinator have died, the coordinator may have told some owners already: this is
// the one case in which parts of an acquire are counted without others whose owners live.
//
// Reservations count in other decisions. Another acquire may be refused because of a reservation
// that is undone later, but none is ever admitted in excess of a limit.
//
// An [Acquirer] runs acquires; a [Participant] runs on each node that owns some of the keys. Both
// are safe for concurrent use. Neither knows the owners of keys: their callers pass them in.
package multiowner

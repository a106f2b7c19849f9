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
// the coordinator says that it is settled: all owners know. An owner that is told nothing for a
// while asks the decider. If the decider has not heard of the acquire, it answers that it is not
// carried out, and from then on refuses it, so that a late message can't make that wrong. Only the
// process that decides knows the outcome, wherever its partitions have gone. So before it leaves
// the cluster, it has all members ask for what they still have reserved ([Participant.Leave]).
//
// If the decider and the coordinator have died, or the outcome has not been learnt in ten seconds,
// nobody knows it. What is reserved is then counted: the decider may have counted its part, which
// may be lost with it, and no limit is exceeded if it has not. The caller of such an acquire gets
// syncer.ErrUnknownOutcome, also when the coordinator had given it up but could not say so before
// an owner counted: that owner remembers it, and tells the coordinator, which would otherwise begin
// again elsewhere. If both have died, the coordinator may have told some owners already: this is
// the one case in which parts of an acquire are counted without others whose owners live.
//
// Reservations count in other decisions. Another acquire may be refused because of a reservation
// that is undone later, but none is ever admitted in excess of a limit.
//
// An [Acquirer] runs acquires; a [Participant] runs on each node that owns some of the keys. Both
// are safe for concurrent use. Neither knows the owners of keys: their callers pass them in.
package multiowner

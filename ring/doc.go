// Package ring says who is alive and who owns what: a membership kept by gossip (SWIM, as
// hashicorp/memberlist has it) and, for every state of it, a [Table] that maps each partition to
// its owner.
//
// # Ownership
//
// A table is a pure function of the members and of what all of them are configured with: consistent
// hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam 2018, as buraksezer/consistent has
// it). Two nodes that see the same members have the same table, whose [Table.Version] is a digest
// of what went in. A table never changes; [Ring.Table] returns the present one without a lock.
//
// # Members
//
// A member has two names. Its ID is what it is configured with, and stays over restarts: it decides
// which partitions are its own, so a node that comes back gets back what it had. Its Name is new
// for every process: what a process has promised is never taken for the promise of its successor.
// Of two members with one ID the younger one counts.
//
// A node counts only if it was built from the same protocol version and is configured with the same
// number of partitions, the same hash seed and the same ladders; another is refused on both sides,
// with the reason.
//
// A member that is about to leave says so first ([Ring.Drain]): it owns nothing any more but is
// there to hand over what it had.
//
// # What happens when
//
// A member that stops answering is suspected within two seconds and declared dead after another
// four to eight: four among three nodes that have been there for a while, and the more the fewer
// others suspect it, too. One that leaves is gone within half a second. Nodes that lost sight of
// each other try to join again every ten seconds for as long as they live, so a partition of any
// length heals.
//
// # Concurrency
//
// All methods of [Ring] may be called at the same time. Changes are told to Options.OnChange by one
// goroutine, one at a time, and never under a lock of the gossip.
package ring

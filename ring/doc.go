// Package ring tracks the live members of a cluster and the owner of each partition. It keeps a
// membership by gossip (SWIM, as implemented by hashicorp/memberlist) and derives from it a [Table]
// that assigns every partition to an owner.
//
// # Ownership
//
// A table is a pure function of the members and of the configuration they share. Placement is
// consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam 2018, as implemented by
// buraksezer/consistent). Nodes that see the same members have the same table, and [Table.Version]
// is a digest of its inputs. A table is immutable; [Ring.Table] returns the current one without a
// lock.
//
// # Members
//
// A member has two names. Its ID comes from its configuration and survives restarts. Placement
// depends on the ID, so a node that comes back owns its previous partitions again. Its Name is
// unique to the process, so a promise made by one process is never mistaken for one made by its
// successor. If two members have the same ID, the younger one counts.
//
// A node can only join a cluster with the same protocol version, number of partitions and hash
// seed, and with the same hash tags in every namespace. Any other node is refused by both sides,
// with the reason.
//
// A member that is about to leave announces it first ([Ring.Drain]). It then owns nothing, but
// stays reachable while it hands its partitions over.
//
// A member sends its announcements, such as that it is about to leave, to each member directly.
// Gossip repeats them.
//
// # Timing
//
// A member that stops answering is suspected within two seconds and declared dead four to eight
// seconds later: four in a cluster of three long-running nodes, and longer when fewer of the others
// suspect it as well. A member that leaves is gone within half a second. Nodes that have lost each
// other try to reconnect every ten seconds for as long as they live, so a network split of any
// length heals.
//
// # Concurrency
//
// All methods of [Ring] are safe for concurrent use. Options.OnChange is called by a single
// goroutine, and never while gossip holds a lock.
package ring

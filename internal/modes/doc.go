// Package modes changes the mode of a whole cluster without losing a count.
//
// A cluster counts in memory, each key at its owner ([TwoTier]), or in Redis alone ([Redis]). A
// change is a two-phase commit. First every node stops deciding and flushes all its counts to the
// store (prepare), while operations wait. When all nodes are done they continue in the new mode
// (commit), otherwise in the old one (abort). So no count is lost, and no decision misses one. A
// node that does not learn the result of a change continues as before after a while.
//
// Each change has a number, the term, which nodes gossip together with their mode. A node that
// missed changes follows the latest term ([Switch.FollowMembers]).
//
// A [Switch] is one node's part in this and is safe for concurrent use. It is independent of
// counts, partitions and reservations, apart from having them stopped, flushed and resumed.
package modes

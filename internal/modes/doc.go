// Package modes changes how a whole cluster counts, without losing a count.
//
// A cluster counts in memory, each key at its owner ([TwoTier]), or in Redis alone ([Redis]). A
// change has two steps, as in two-phase commit. First every node stops deciding and has all that it
// counted in the store (prepare); operations wait meanwhile. When all have, they go on in the new
// mode (commit), or else in the old one (abort): no count is lost, and no decision misses one. Who
// does not hear the end of a change goes on as before after a while.
//
// Each change has a number, the term, which nodes gossip with their mode: one that was away follows
// the latest term ([Switch.Follow]).
//
// A [Switch] is one node's part in that. It may be used by several goroutines. It knows nothing of
// counts, partitions or reservations, but how to have them stopped, flushed and begun.
package modes

// Package routing carries out each operation where its keys are decided about.
//
// [Router.Do] is a loop over one decision. An operation goes
//
//   - local: to this node's memory, if it owns all the keys;
//   - forward: to the one other node that does, in a message;
//   - several: to all owners, if there are several, see package multiowner;
//   - fallback: to this node's memory although another owns the keys, as that one can't be reached:
//     what both count meets in the store;
//   - redis: to a script in Redis, while the cluster counts in Redis.
//
// The first decision is by the ring's table and costs a look-up. If it turns out that others
// decide, because partitions are on their way or the mode has changed, the next one is by who
// decides at that moment. What another node forwards is never forwarded again: [Router.Serve]
// carries it out, or names who does.
//
// A forward is saved where this node has a lease of a hot key, or remembers that its owner refused
// the same a moment ago.
//
// A Router may be used by several goroutines. It holds no state but memory for messages: who owns
// what, leases, refusals and the mode are told it by its [Options].
package routing

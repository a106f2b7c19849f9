// Package routing runs each operation where its keys are decided.
//
// [Router.Do] is a loop over one decision. An operation goes
//
//   - local: to this node's memory, if it owns all the keys, or borrows those that it does not own
//     (package hotkeys);
//   - forward: in a message to the node that owns them;
//   - several: to all owners, if there is more than one, see package multiowner;
//   - relay: to one of several other owners, which sends it to all of them;
//   - fallback: to this node's memory although another node owns the keys, because the owner can't
//     be reached. The counts of both nodes meet in the store;
//   - redis: to a script in Redis, while the cluster counts in Redis.
//
// The first decision uses the ring's table and costs a look-up. If it turns out that other nodes
// decide, because partitions are being handed over or the mode has changed, the next decision uses
// who decides at that moment. An operation that was forwarded is never forwarded again:
// [Router.Serve] runs it, or names the node that decides, and [Router.Coordinate] runs it if this
// node is one of the owners.
//
// Keys that nodes borrow from each other are left out of account at first: whoever owns the others
// decides about all. If that one has not borrowed enough, all owners decide.
//
// A forward is not needed if this node remembers that the owner refused the same operation a moment
// ago.
//
// A Router is safe for concurrent use. Its only state is reusable memory for messages; its
// [Options] tell it about owners, loans, refusals and the mode.
package routing

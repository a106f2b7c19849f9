// Package routing runs each operation on the node that owns its keys.
//
// [Router.Do] is a loop over one decision. An operation goes
//
//   - local: to this node's memory, if it owns or borrows every key (package hotkeys);
//   - takeBack: to this node's memory, after a recall of the other nodes' counts of lent keys;
//   - forward: in a message to the single owner of all keys;
//   - several: to all owners, if there is more than one, see package multiowner;
//   - relay: to one of several other owners, which sends it to all of them;
//   - fallback: to this node's memory although another node owns the keys, because the owner can't
//     be reached. The counts of both nodes meet in the store;
//   - redis: to a script in Redis, while the cluster counts in Redis.
//
// The first decision reads the router's [View] and costs one look-up. If it turns out to be wrong,
// because partitions are being handed over or the mode has changed, the next decision asks for the
// current owners. A forwarded operation is never forwarded again: [Router.Serve] runs it or names
// the owner, and [Router.Coordinate] runs it if this node is one of the owners.
//
// Keys that nodes borrow from each other are left out of account at first: the owner of the other
// keys decides about all of them. If that node has not borrowed enough, all owners decide.
//
// A forward is saved if this node remembers that the owner has just refused the same operation.
//
// A Router is safe for concurrent use. Its only state is the view and reusable memory for messages;
// owners, loans, refusals and the mode come from its [Options].
package routing

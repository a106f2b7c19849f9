// Package roster keeps a list of the living processes in the store that they share.
//
// Gossip alone finds other nodes only by the addresses in a node's configuration. A node that knows
// none but its own address would form a cluster of its own beside the living one, and both would
// admit a whole limit. So every process keeps an [Entry] in the store and renews it. A starting
// node reads the list ([Roster.Enter]), contacts the listed nodes, and may own partitions once it
// belongs to their cluster, or their entries have run out.
//
// The list also reveals strangers: processes that renew their entries, so they use the same data,
// but are not members of this node's cluster. Either another cluster shares the data by mistake, or
// the network between the nodes is cut. In both cases several processes own the same keys.
// Processes that only count in the store don't own any, and are no strangers to each other.
//
// The list has bounds: an entry runs out [Lease] after its last renewal, by the store's clock, and
// a start waits at most [Patience] for nodes that it does not reach.
//
// # Concurrency
//
// A [Roster] is safe for concurrent use.
package roster

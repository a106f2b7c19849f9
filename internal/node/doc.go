// Package node is one twotier server without its network side: it puts the parts together, starts
// and stops them in the right order, and answers for them.
//
// # One operation
//
// [Node.Do] hands it to package routing, which carries it out here, at its owner, at several
// owners, or in Redis. [Node.Serve] takes what other nodes forward, [Node.Answer] what else they
// ask.
//
// # Parts
//
//   - routing: where an operation goes
//   - ownership: which partitions the node decides about, takeovers and handoffs
//   - multiowner: acquires over several owners, and reservations
//   - modes: how the whole cluster changes between memory and Redis
//   - hotkeys: leases of keys that are too hot for their owner
//   - refusals: what owners refused a moment ago
//   - topkeys: the keys that are counted most
//   - storeclock: the time that events are counted at, which follows the store's
//   - rpc, retry: what nodes ask of each other about keys, and waits between attempts
//
// None of them knows the node: each declares the few methods that it needs of others, and is tested
// with fakes of those. What is left here is what needs all of them: starting, draining and closing
// (node.go, drain.go), questions about the whole cluster (query.go, cluster.go, status.go).
//
// A Node may be used by several goroutines. It knows no wire format: package peer has that of the
// nodes, httpapi that of everybody else.
package node

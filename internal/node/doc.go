// Package node is one twotier server without its network side. It assembles the parts, starts and
// stops them in the right order, and answers requests with them.
//
// # One operation
//
// [Node.Do] passes an operation to package routing, which runs it on this node, at its owner, at
// several owners, or in Redis. [Node.Serve] runs what other nodes forward, and [Node.Answer]
// answers their other questions.
//
// # Parts
//
//   - routing: where an operation goes
//   - ownership: which partitions this node decides for, takeovers and handoffs
//   - multiowner: acquires over several owners, and reservations
//   - modes: how the whole cluster switches between memory and Redis
//   - hotkeys: what nodes borrow of keys that are too hot for their owner
//   - refusals: what owners refused a moment ago
//   - topkeys: the keys with the largest counts
//   - storeclock: the time that events are counted at, which follows the store's clock
//   - rpc, retry: requests between nodes about keys, and waits between attempts
//
// None of the parts knows the node. Each declares the few methods it needs of the others and is
// tested with fakes of them. This package has what needs all parts: starting, draining and closing
// (node.go, drain.go), and questions about the whole cluster (query.go, cluster.go, status.go).
//
// A Node is safe for concurrent use. It knows no wire formats: package peer has the one between
// nodes, httpapi the one for everyone else.
package node

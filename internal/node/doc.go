// Package node is one twotier server without its network side. It assembles the parts, starts and
// stops them in the right order, and answers requests with them.
//
// # One operation
//
// [Node.Do] passes an operation to package routing, which runs it on this node, at its owner, at
// several owners, or in Redis. [Node.Serve] runs operations forwarded by other nodes, and
// [Node.Respond] answers their other requests.
//
// # Parts
//
//   - routing: the destination of an operation
//   - ownership: the partitions that this node decides for, takeovers and handoffs
//   - multiowner: acquires over several owners, and reservations
//   - modes: the switch of the whole cluster between memory and Redis
//   - hotkeys: loans of keys that are too hot for their owner
//   - refusals: recent refusals by owners
//   - topkeys: the keys with the largest counts, or the most refusals
//   - verdicts, refusallog, bans: counters and records of decisions, see sinks.go
//   - storeclock: the time that events are counted at, which follows the store's clock
//   - rpc, retry: requests between nodes about keys, and waits between attempts
//
// None of the parts holds the node. Each declares the few methods it needs of the others and is
// tested with fakes of them. This package does the work that needs all parts: starting, draining
// and closing (node.go, drain.go), and requests about the whole cluster (query.go, cluster.go,
// status.go).
//
// A Node is safe for concurrent use. It knows no wire formats: package peer defines the format
// between nodes, httpapi the one for clients.
package node

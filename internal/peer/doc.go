// Package peer is the protocol between nodes. A node forwards operations to the owner of their
// keys, and sends requests, whose kinds are [node.RequestKind].
//
// # Batches
//
// A [Client] has a few workers for each node, each with one message in flight. While all workers
// are busy, calls to the node wait, and go out together in the next message, see package batching.
// Tasks that wait for the store, tasks that wait for other nodes, and resets have separate workers,
// so that no circle of nodes can wait for each other.
//
// A caller that divides a batch among several nodes hands all parts to the workers, does its own
// work meanwhile, and waits for all answers at once: no goroutine is started for a node.
//
// A batch is encoded from the memory of its caller, decoded into slices that are reused, executed
// as a whole, and its results are decoded into the caller's memory. Operations of a batch that
// differ in their keys only are sent once, then only the keys; an ordinary answer takes one byte
// and the figures of its limits.
//
// # Traces
//
// A call or request that is part of a trace (package trace) carries its context.
//
// # At most once
//
// A message carries the name of the sending process, the worker, and a number that only grows. For
// each worker the receiver keeps the number of the last message and its reply, see package replay.
// So a message that is sent again for lack of a reply is executed once and gets the same reply. A
// message also names the receiving process. If that process has been restarted, the new one has no
// record of earlier messages and refuses the copy. A message is sent again until it is answered or
// its time is up.
//
// # In time
//
// Every reply carries its sender's clock. So a message can carry a deadline by the clock of the
// receiver, which refuses it after that, however late it arrives. Callers that share a message keep
// their own deadlines. With less than 5 ms left nothing is sent.
//
// # Outcomes
//
// A caller gets the answer of the node, or one of four errors, which are all decided in one place:
// the outcome is unknown (twotier.ErrUnknownOutcome); the time was up before the node got the
// message ([rpc.ErrLate]), although the node may be fine; the node answers, but does not accept the
// message ([rpc.ErrRefused]); or the node can't be reached ([rpc.ErrUnreachable]). The last three
// guarantee that nothing was done.
//
// # Failure
//
// A node is unreachable if its address refuses connections, or if three pings in a row have passed
// without any sign of life. Then the circuit is open: callers get an error at once, so that they
// can fall back, and one message at a time probes whether the node is back. A slow message does not
// open the circuit. It only has the node pinged, and another worker takes the waiting calls.
//
// # Secrecy
//
// With a secret all messages are encrypted and authenticated with AES-256-GCM, under keys derived
// from the secret for each pair of processes and direction (HKDF, RFC 5869). A copied message is
// refused because of its number. Without a secret messages are plain: use this only for nodes on
// one machine. There may be several secrets while one replaces another. The first one seals, any of
// them opens, and a reply is sealed with the secret of its message.
//
// A [Transport] carries the messages; package httpapi has the one over HTTP.
package peer

// Package client is the Go client of a twotier cluster. It learns which node owns which key and
// asks that node directly, batches concurrent calls, and retries lost requests without counting
// twice.
//
//	c, err := client.New(client.Options{Addresses: []string{"10.0.0.1:8080", "10.0.0.2:8080"}})
//	...
//	defer c.Close(context.Background())
//	a, err := c.Acquire(ctx, client.AcquireRequest{Check: client.Check{
//		Key: "user:42", Limits: []client.Limit{{Window: time.Minute, Max: 15}},
//	}})
//
// # Routing
//
// The client reads the table of owners every few seconds, and at once when a node had to forward an
// operation or does not answer. If the owner of a key does not answer, the operation goes to any
// other node, which forwards it to the owner or counts in its place. Without a table (all counts
// are in Redis, or no node has sent one yet) the client uses all nodes in turn.
//
// # Batches
//
// Calls that wait for a node are sent as one request as soon as an earlier request is answered; no
// timer delays them. A node has a few lanes, each with one connection and one request in flight.
// Operations with [AckRedis], and operations that the node has to forward, use separate lanes, so
// that others don't wait for Redis or for another node.
//
// # At most once
//
// A lane is a session with the server: its requests are numbered. A request whose answer is lost is
// sent again, with the same number, to the same process, which executes it once. The client only
// tries another node if the first one certainly did nothing: there was no connection to send the
// request on, or the node answered that it did nothing. If the answer does not arrive in time, or
// never can because the process is gone, a call that counts returns [ErrUnknownOutcome]. A call
// that only reads goes to another node.
//
// # Limitations
//
// The client keeps no counts and makes no decisions. If there is no answer, it does not guess one:
// a [Gate] does what its options choose for that case. The client does not wait for nodes to come
// back: if none can be reached, a call fails at once and the caller can decide.
package client

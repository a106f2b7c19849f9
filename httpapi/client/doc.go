// Package client is the Go client of a twotier cluster. It learns which node owns which key and
// asks that one directly, sends together what is asked at the same time, and repeats what got lost
// without counting twice.
//
//	c, err := client.New(client.Options{Addresses: []string{"10.0.0.1:8080", "10.0.0.2:8080"}})
//	...
//	defer c.Close(context.Background())
//	a, err := c.Acquire(ctx, client.AcquireRequest{Check: client.Check{
//		Key: "user:42", Limits: []client.Limit{{Window: time.Minute, Max: 15}},
//	}})
//
// # Where a call goes
//
// The table of owners is read every few seconds, and at once when a node had to pass on what was
// sent to it, or does not answer. A key whose owner does not answer goes to any other node, which
// asks the owner or counts in its place. Without a table (all counts are in Redis, or no node has
// told yet) all nodes are asked in turn.
//
// # Batches
//
// What waits for a node when an answer of it arrives goes out as one request: nobody waits for a
// clock. A node has a few lanes, each with a connection and one request under way. Operations with
// [AckRedis], and those that the node has to pass on, have lanes of their own, so that others need
// not wait for Redis or another node with them.
//
// # At most once
//
// A lane is a session of the server's: its requests are numbered, and one whose answer is lost is
// sent again, under its number, to the same process, which carries it out once. Another node is
// asked only if the first has certainly done nothing: there was no connection to send the request
// on, or it answered that it did nothing. A call whose answer can't be had in time, or not any more
// because the process is gone, ends with [ErrUnknownOutcome] if it counts. One that only reads goes
// to another node.
//
// # What it does not do
//
// It keeps no counts and no decisions, and has no opinion on what to do without an answer: that of
// a [Gate] is chosen by whoever makes it. It does not wait for nodes to come back: with none in
// reach a call fails at once, so that its caller can decide.
package client

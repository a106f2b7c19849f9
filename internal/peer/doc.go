// Package peer is what nodes say to each other: operations that one forwards to the owner of their keys, and questions.
//
// # Batches
//
// Whatever waits for a node when a message to it returns goes out with the next one: the busier it is, the more share the cost
// of a message, and nobody waits for a clock. A [Client] has a few lanes for each node, each with one message under way.
//
// # At most once
//
// A message carries the name of the process that sends it, the lane, and a number that only grows. Who gets one keeps the number of the
// last of each lane and the reply to it: a message that is sent again because no reply came is carried out once, and told
// the same reply. It also names the process it is meant for, so one that has been restarted, and knows nothing of what was
// said before, refuses it. A caller hears that nothing was done ([node.ErrUnreachable]), or that nobody knows
// (syncer.ErrUnknownOutcome); a message is sent again until somebody answers or its time is up.
//
// # Failure
//
// A node that does not answer in time, or refuses connections, is not asked again (the circuit is open): callers are told at
// once, so they can do without it, while a single message at a time finds out whether it is back.
//
// # Secrecy
//
// With a secret all messages are encrypted and authenticated with AES-256-GCM, under keys derived from it for each pair of
// processes and direction (HKDF, RFC 5869); a copied message is refused by its number. Without one they are plain: that is for nodes on one
// machine.
//
// The way a message takes is a [Transport]; package httpapi has the one over HTTP.
package peer

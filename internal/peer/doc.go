// Package peer is what nodes say to each other: operations that one forwards to the owner of their
// keys, and questions, whose kinds are those of [node.Questions].
//
// # Batches
//
// Whatever waits for a node when a message to it returns goes out with the next one, see package
// batching. A [Client] has a few lanes for each node, each with one message under way.
//
// # At most once
//
// A message carries the name of the process that sends it, the lane, and a number that only grows.
// Who gets one keeps the number of the last of each lane and the reply to it, see package replay: a
// message that is sent again because no reply came is carried out once, and told the same reply. It
// also names the process it is meant for, so one that has been restarted, and knows nothing of what
// was said before, refuses it. A message is sent again until somebody answers or its time is up.
//
// # In time
//
// Every reply says what the clock of its sender shows. So a message can say until when it is to be
// carried out, by the clock of the process that gets it, and is refused there once that has passed,
// however long it was on its way. Callers that share a message keep their own deadlines. With less
// than 5 ms left nothing is sent.
//
// # Outcomes
//
// A caller hears what the node says, or one of four things that are told apart in one place: that
// nobody knows (syncer.ErrUnknownOutcome); that the time was up before the node got it
// ([rpc.ErrLate]), which says nothing of the node; that the node answers, but does not take it
// ([rpc.ErrRefused]); or that it can't be reached ([rpc.ErrUnreachable]). After the last three it
// is certain that nothing was done.
//
// # Failure
//
// A node whose address refuses connections, or that has left three questions one after the other
// without any sign of life, can't be reached: the circuit is open, callers are told at once, so
// they can do without it, and a single message at a time finds out whether it is back. That a
// message takes long is no reason. It has the node asked those questions, and another lane takes
// what waits.
//
// # Secrecy
//
// With a secret all messages are encrypted and authenticated with AES-256-GCM, under keys derived
// from it for each pair of processes and direction (HKDF, RFC 5869); a copied message is refused by
// its number. Without one they are plain: that is for nodes on one machine. There may be several
// secrets while one replaces another: the first seals, each opens, and a reply is sealed as its
// message was.
//
// The way a message takes is a [Transport]; package httpapi has the one over HTTP.
package peer

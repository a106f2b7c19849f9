// Package peerhttp sends messages from one node to another over HTTP.
//
// Package httpapi receives them at [Path] and passes them to a peer.Server. A [Transport] is what a
// peer.Client sends with: it keeps connections open, and says of each failed message whether the
// message certainly did not arrive.
//
// A Transport is safe for concurrent use. It does not read what it sends: package peer seals
// messages and matches replies to them.
package peerhttp

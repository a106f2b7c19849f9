// Package peerhttp sends messages from one node to another over HTTP.
//
// Package httpapi receives them at [Path] and passes them to a peer.Server. A [Transport] is the
// transport of a peer.Client: it keeps connections open, and reports for each failed message
// whether it certainly did not arrive.
//
// A Transport is safe for concurrent use. It does not interpret messages: package peer seals them
// and matches replies to them.
package peerhttp

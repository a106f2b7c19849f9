// Package load generates HTTP load for a server on the same machine while taking as little as possible of it for itself:
// requests are made once and patched in place, sent over raw connections, and of an answer only what has to be known is
// read. It is therefore not an HTTP client for anything else than the servers measured here, which answer with
// Content-Length and keep connections open.
//
// When a call is made, and from when its time counts, is up to package pace.
package load

// Package idle checks whether a connection that was kept for reuse is still open. It has no state,
// is safe for concurrent use, and only works on Unix, without TLS; elsewhere every connection
// counts as open.
package idle

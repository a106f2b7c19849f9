// Package load generates HTTP load for a server on the same machine while taking as little as possible of it for itself:
// requests are made once and patched in place, sent over raw connections, and of an answer only what has to be known is
// read. It is therefore not an HTTP client for anything else than the servers measured here, which answer with
// Content-Length and keep connections open.
//
// A closed loop keeps every connection busy and finds the largest throughput. An open loop sends at a rate whether or not
// the server keeps up, and measures from when a request was due: a stall counts for every request that had to wait for it
// (coordinated omission, see Gil Tene, "How NOT to Measure Latency").
package load

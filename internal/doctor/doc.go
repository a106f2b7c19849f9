// Package doctor reports present and future problems with the Redis and the cluster that a server
// is configured to use, and their remedies. It judges facts that callers have collected, and only
// checks itself whether other nodes can be reached; package redisstore asks Redis.
//
// Its functions have no state and are safe for concurrent use.
package doctor

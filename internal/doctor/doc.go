// Package doctor says what is wrong, or will be, with the Redis and the cluster that a server is
// configured to use, and what to do about it. It judges what others have found out, and asks only
// whether other nodes can be reached; package redisstore asks Redis.
//
// Its functions have no state and are safe for concurrent use.
package doctor

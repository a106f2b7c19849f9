// Package memory bounds the memory of requests over HTTP. A [Budget] is for the clients of an
// endpoint, each of which may use a share; a [Request] is the part that one connection has taken.
package memory

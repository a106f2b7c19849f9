// Package demo sends traffic to the nodes of a cluster so that there is something to see: keys of
// which a few are busy, limits that are reached, and from time to time one key that is hotter than
// all others.
//
// It only knows the nodes by their URLs, and talks to them over HTTP like any client. It remembers
// what it counts under [Key]: every node must report the same number.
package demo

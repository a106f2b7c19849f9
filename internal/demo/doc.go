// Package demo sends some traffic to the nodes of a cluster, so that there is something to see:
// keys of which few are busy, limits that are reached, and now and then one key that is hotter than
// all others.
//
// It knows the nodes by their URLs only, and talks to them over HTTP like anybody else. What it
// counts of its own under [Key] it remembers: every node must say the same number.
package demo

// Package bans refuses keys for some time after a rule has refused them once.
//
// A ban is a counter like any other, in a namespace that clients can't write, and in the same
// partition as the banned key (twotier.BanKey). So it is decided, flushed, handed over, loaded and
// lost together with the counts of that key, in every mode. [Extend] adds the bans of the rules
// that judge an operation to its checks, and [Extended.ReduceResult] removes their results from the
// answer.
//
// A [Log] remembers the bans that a node has seen start or refuse a request, so that they can be
// listed. An entry may be out of date: only the counters are authoritative.
package bans

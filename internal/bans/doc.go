// Package bans refuses keys for some time after a rule has refused them once.
//
// A ban is a counter like any other, in a namespace that clients can't write, and has the same
// partition as the key that it bans (syncer.BanKey). So it is decided, flushed, handed over, loaded
// and lost together with the counts of that key, in every mode. [Extend] adds the bans of the rules
// that judge an operation to its checks, and [Extended.Fold] takes their results out of the answer.
//
// A [Log] remembers which bans a node has seen start or refuse, so that they can be listed. What is
// listed has to be looked up: the counters alone say which bans there are.
package bans

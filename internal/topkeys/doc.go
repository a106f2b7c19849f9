// Package topkeys finds the keys that are counted most.
//
// A node that counts in memory looks through what it has: a [Cache] keeps the answer for a second.
// A node that counts in Redis has nothing to look through: a [Sample] follows the keys that it was
// asked about most. [Largest] merges what several nodes say.
//
// Caches and samples may be used by several goroutines. Neither knows of other nodes.
package topkeys

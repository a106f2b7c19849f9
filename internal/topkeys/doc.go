// Package topkeys finds the keys with the largest counts.
//
// A node that counts in memory searches its memory, and a [Cache] keeps the result for a second. A
// node that counts in Redis has no memory to search, so a [Sample] tracks the keys it was asked
// about most. [Largest] merges the results of several nodes.
//
// A Cache and a Sample are safe for concurrent use. Neither knows about other nodes.
package topkeys

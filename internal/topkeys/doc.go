// Package topkeys finds the keys with the largest counts.
//
// A node that counts in memory searches its memory, and a [Cache] keeps the result for a second. A
// node that counts in Redis has no memory to search, so a [Sample] tracks the keys of most of its
// requests. [Refused] is such a sample of refusals. [Largest] merges the results of several nodes.
//
// A Cache, a Sample and a Refused are safe for concurrent use. None knows about other nodes.
package topkeys

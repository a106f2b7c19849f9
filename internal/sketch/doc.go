// Package sketch estimates the number of distinct values that a bucket has seen, in bounded memory.
//
// A [Set] holds hashes of values, each of 64 bits: up to [MaxExact] of them exactly, and beyond
// that the 4,096 registers of a HyperLogLog, which take as much memory. Sets are merged by union,
// or by the maximum of each register, so merging is commutative, associative and idempotent: in
// whatever order sets are merged, and however often, the result is the same.
//
// A [Union] is the union of the sets of several buckets. It is exact until it holds more than
// [MaxUnion] values, or one of the buckets is not.
//
// The estimator is that of Otmar Ertl, "New cardinality estimation algorithms for HyperLogLog
// sketches" (arXiv:1702.01284, algorithm 6): it has no bias that tables must correct and no range
// that needs another estimator. Its relative standard error with m registers is 1.04/sqrt(m), here
// [Error]. TestAccuracy measures it.
//
// The hashes must be uniform: [Hash] is the beginning of the SHA-256 of a seed and the value, so
// that only someone who knows the seed can choose values that collide or fill a register.
package sketch

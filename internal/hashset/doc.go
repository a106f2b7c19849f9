// Package hashset keeps sets of 32-bit hashes in little memory: 5 to 10 bytes for each.
//
// It uses open addressing with linear probing (Knuth, vol. 3, 6.4, algorithm L). Hashes are only
// added, so there are no gaps to close. Memory comes from a slab.Pool, where it counts against the
// pool's budget and the garbage collector does not look at it.
//
// A set has no lock: callers that share one must guard it.
package hashset

// Package table finds blocks of an arena by the hash of their content.
//
// It uses open addressing with linear probing (Knuth, vol. 3, 6.4, algorithms L and R). A slot
// holds 32 bits of the hash and the block's 32-bit ref, so a probe only reads a block if the hashes
// agree, and the garbage collector has nothing to follow. Two blocks may have the same hash: the
// caller of [Table.Find] chooses between them.
//
// It is hand-written because every operation passes through it. Syncer's BenchmarkAddAmongAMillion
// compares with BenchmarkShardedMapAmongAMillion, which does the least possible with Go maps.
//
// A table has no lock: callers that share one must guard it.
package table

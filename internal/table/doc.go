// Package table finds blocks of an arena by the hash of what is in them.
//
// It is open addressing with linear probing (Knuth, vol. 3, 6.4, algorithms L and R). A slot is 32
// bits of the hash and the 32 bits of the block's ref, so a probe reads a block only if the hashes
// agree, and the collector has nothing to follow. Two blocks may have the same hash: the caller of
// [Table.Find] says which one is meant.
//
// It is written by hand because every operation passes here: syncer's BenchmarkAddAmongAMillion
// stands beside BenchmarkShardedMapAmongAMillion, which does the least that can be done in maps.
//
// A table has no lock: whoever shares one guards it.
package table

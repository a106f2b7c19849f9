// Package keys holds the keys of one partition in memory: their names, their two numbers, and their
// state between memory and the store.
//
// A [Keyspace] is a table of entries in an arena. An [Entry] is the block of one key: its name,
// flags, the time of its last use, and two counters. Synced is the store's count as last reported.
// Pending is the part of the counts that the store has not acknowledged. Nothing is merged: a
// reader sees their sum ([Keyspace.View]).
//
// [Namespaces] maps the namespace of a key to its ladder and its other settings. [StoredHashes]
// holds the hashes of keys that the store may have and memory does not.
//
// # Promises
//
// An entry keeps its place, and so its Ref, as long as it has the flag of something that refers to
// it (dirty, busy, parked, shared), except in [Keyspace.Compact], which returns all new places.
// Unflushed counts are never evicted: [Keyspace.EvictOne], [Keyspace.Sweep] and
// [Keyspace.EvacuateSome] drop clean entries only. Without a store, all counts are pending, and the
// smallest go first when memory is full. Counts that have left every window are dropped
// and, if the store never had them, counted in Expired.
//
// A counter that is crowded folds, which never changes the sum of its buckets. The entry then has
// the rewrite mark, so that its next round writes all that the key has.
//
// # Concurrency
//
// Nothing here is safe for concurrent use, except for the number of keys of a [Namespace]: the
// caller holds the lock of the partition. No method waits.
//
// # Not included
//
// The package knows neither rounds nor the store nor loans. Its caller sets the flags of dirty,
// busy and shared entries, and determines whether memory has room for another key.
package keys

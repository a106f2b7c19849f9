// Package redisstore keeps counts in Redis: it implements syncer.Store, and the operations of pure-Redis mode over the same
// layout.
//
// # Layout
//
// Every key is one Hash, tt:{p17}:NAMESPACE:KEY, where p17 is its partition: the braces make it the hash tag of Redis
// Cluster, so that all keys of a partition are in one slot and a script may touch them together. A field is one
// bucket: its index (unix milliseconds divided by the width) times ten plus its level, as decimal digits, which Redis
// keeps as a small integer. The value is the count. Beside the counts of a partition are
//
//	tt:{p17}!s           a Hash with the state of the partition: v, how many times it was changed, by whomever, and e, its epoch,
//	                     which is drawn when the first of its counts is written: where it differs, all that was there is lost
//	tt:{p17}!w:WRITER    the sequence of the last round that this writer had applied
//
// and, once for all, tt:meta with what all who share the data must agree on: the number of partitions, the seed, the
// ladder of every namespace.
//
// # Exactly once
//
// A round is one script call. It is carried out only if its sequence is above the stored one, and stores it as its first
// write together with the version: a script that is refused (out of memory, read only, loading) is refused there, with
// nothing done. So sending a round again is always safe, whether by the caller, by the library's
// redirections or by a reconnect. A key that can't be counted (a foreign type under its name) is reported and passed over.
//
// # Concurrency
//
// A [Store] may be used by many goroutines, but no two may have rounds of one partition under way. The library's own
// retries are off, and every exchange is bounded by its context.
package redisstore

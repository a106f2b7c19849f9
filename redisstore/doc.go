// Package redisstore keeps counts in Redis: it implements syncer.Store, and the operations of
// pure-Redis mode over the same layout.
//
// # Layout
//
// Every key is one Hash, tt:{p17}:NAMESPACE:KEY, where p17 is its partition: the braces make it the
// hash tag of Redis Cluster, so that all keys of a partition are in one slot and a script may touch
// them together. A field is one bucket: its index (unix milliseconds divided by the width) times
// ten plus its level, as decimal digits, which Redis keeps as a small integer. The value is the
// count. Beside the counts of a partition are
//
//	tt:{p17}!s
//	    a Hash with the state of the partition: e, its epoch, which is drawn when somebody first
//	    asks about it and again after a loss; s, whether that began with what a loss had left (1)
//	    or with nothing (0); v, how many times it was changed, by whomever, and q, how many times
//	    quietly
//	tt:{p17}!w:WRITER
//	    the sequence of the last round or part of a restoration that this writer had applied, a
//	    dot and its nonce, and after a colon the positions of the keys that were refused
//	tt:{p17}!r:NAMESPACE:KEY
//	    a Hash with what was restored of a key: e, the epoch in which it was (in another, all
//	    that follows is void), each bucket and how much of it, and x if the key was reset in this
//	    epoch, in whichever mode
//
// and, once for all, tt:meta with what all who share the data must agree on: the number of
// partitions, the seed, how buckets expire, the ladder of every namespace. The first to come writes
// it; with Options.AnySeed a store takes the seed that is there.
//
// A key's Hash holds no more buckets than its ladder has, once a round is carried out: who writes
// to it deletes what has fallen behind, though nobody remembers that it is there.
//
// # Exactly once
//
// A round is one script call. It is carried out only if its sequence is above the stored one, and
// stores it before it counts anything: a script that is refused (out of memory, read only, loading)
// is refused there, with nothing done. So sending a round again is always safe, whether by the
// caller, by the library's redirections or by a reconnect. After that nothing ends the script
// early: a key that can't be counted (a foreign type under its name, a command that the user may
// not use) is reported and passed over, and what was done of its part is undone.
//
// # Losses
//
// Redis has lost data if its epoch is another than a counter was told, or if of the same epoch it
// has fewer changes than it said or an older sequence than it acknowledged: a failover to a replica
// that lagged, a restart from an old dump, FLUSHALL. Who finds that restores what memory knows. It
// draws a new epoch if nobody has yet, above all that are known, so that everybody else hears of
// the loss with the next exchange and restores what it knows, too.
//
// What is restored adds up with what was counted since, whoever comes first: beside each key it is
// remembered how much of a bucket was restored in this epoch, and only what is missing of it is
// added. In an epoch that began with what a loss left, what is found in a bucket counts as
// restored; so what was counted between such a loss and its discovery may be taken for part of what
// was lost, and what such a loss took of a reset or of what was taken back is not done again. A
// second loss that comes before all counters have restored what the first took may take that. A
// round whose outcome was unknown when all was lost may be counted twice if another counter had
// read it and restores it. All this presupposes that the state of a partition leaves Redis only
// along with its keys: maxmemory-policy must be noeviction.
//
// MessagePack, in which the scripts of pure-Redis mode get and return numbers, is read and written
// by hand: it is hot, and BenchmarkMessagePack has the library that loses.
//
// # Concurrency
//
// A [Store] may be used by many goroutines, but no two may have rounds of one partition under way.
// The library's own retries are off, and every exchange is bounded by its context.
package redisstore

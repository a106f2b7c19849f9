// Package redisstore keeps counts in Redis. [Store] implements syncer.Store; [Direct] runs the
// operations of pure-Redis mode, as scripts over the same layout.
//
// # Layout
//
// Every key is one Hash, tt:{p17}:NAMESPACE:KEY, where p17 is its partition. The braces are a hash
// tag of Redis Cluster: all keys of a partition are in one slot, so a script may touch them
// together. A field is one bucket. Its name is the bucket's index (unix milliseconds divided by the
// width) times ten plus its level, in decimal digits, which Redis stores as a small integer. The
// value is the count. Next to its counts a partition has these keys:
//
//	tt:{p17}!s
//	    a Hash with the state of the partition: e, its epoch, drawn when the partition is first
//	    used and again after each loss; s, whether the epoch began with what a loss left behind
//	    (1) or empty (0); v, the number of changes by anyone; q, the number of quiet changes; l,
//	    the last change by a round or part of a restoration: its sequence, when it was cut (unix
//	    seconds), and the key of its writer
//	tt:{p17}!w:WRITER
//	    the sequence of the last round, or part of a restoration, of this writer that was applied,
//	    a dot and its nonce, and after a colon the positions of keys that were refused
//	tt:{p17}!k:PART
//	    a part of the list of the partition's keys: the hash of each, syncer.KeyHash, in 4 bytes
//	    (little-endian), once or several times. The state has c (1) if the list began with the
//	    data and so is complete, and k, the number of the last part. There are at most two
//	    parts: a new one is begun when the one before the last has expired
//	tt:{p17}!r:NAMESPACE:KEY
//	    a Hash that records what was restored of a key: e, the epoch it was restored in (in any
//	    other epoch the rest is void), each bucket with the amount restored, and x if the key was
//	    reset in this epoch, in either mode
//	tt:{p17}!d:NAMESPACE:KEY
//	    a Hash with the distinct values of a key: v, its version, which is drawn anew with each
//	    write; r, the mark of its last reset; and each bucket, named as above, with an encoded
//	    set, see package sketch. It lives as long as counts do. It has no part in rounds and
//	    losses, see package distinct
//
// A key lives for twice the longest span after a bucket of the coarsest level began. One span is
// not enough: a late event may be a span old, and a window of a span that ends there reaches back
// by another one. If the key were gone by then, that window would be taken for empty rather than
// out of reach, and an acquire would pass that must not.
//
// There is also one tt:meta, with what all users of the data must agree on: the number of
// partitions, the hash seed, which namespaces have hash tags, and how buckets expire. The first
// store to connect writes it. With Options.AnySeed, a store takes the seed it finds there.
//
// A field ladder:NAMESPACE of tt:meta has the widths of all buckets that the keys of a namespace
// are, or were, counted in, in the order of their numbers in fields, and how many of each all users
// keep: "1s x 60, 1m x 60, 100ms x 0+50@1767225600000" says that all have counted in 50 buckets of
// 100 ms since that moment, and that these are not complete before they have been filled. As long
// as a level is not complete, windows are read from a coarser one, see [Store.Follow]. "15m x 0/96"
// says that somebody keeps 96 and somebody none: everybody lets them live as long. A number
// stays with its width, so users with different ladders count the same keys, and each reads what it
// knows.
//
// And there is one tt:rules, a Hash with the versions of the rules that are kept: v, the number of
// the newest, i, its ID, and each by its number as JSON (id, who, at in unix milliseconds, text).
//
// After a round is applied, a key's Hash holds no more buckets than its ladder has, and those of
// levels that only others have: whoever writes to a key deletes the buckets that have fallen
// behind, even if no node has them in memory.
//
// # Exactly once
//
// A round is one script call. The script applies a round only if its sequence is higher than the
// stored one, and it stores the sequence before it counts anything. A script that Redis refuses
// (out of memory, read only, loading) fails at that first write, with nothing done. So it is always
// safe to send a round again, whether the caller does it, the driver follows a redirection, or a
// connection was replaced. After the first write nothing ends the script early. A key that can't be
// counted (a value of another type, a command that the user may not run) is reported and skipped,
// and what was already done for it is undone.
//
// What a refused key was to count is sent again in another round, with another sequence. So it is
// counted twice if two counters have the round, because a handover was not confirmed, and Redis has
// refused the key to both.
//
// Most new keys are counted alike: once, in the same buckets. The script makes the first of them
// and copies it to the others. COPY does nothing if a key exists, and takes the place of EXISTS,
// HSET and PEXPIRE; with fields that expire, of two commands for each of these.
//
// # Losses
//
// Redis has lost data if its epoch differs from what a counter was told, or if within the same
// epoch it has fewer changes than it reported, an older sequence than it acknowledged, or lacks the
// last change that it reported, whoever made it. Causes are a failover to a lagging replica, a
// restart from an old dump, or FLUSHALL. Other changes that take the place of those that were lost
// do not hide the loss, with two exceptions, both about counts that a counter has only read, was
// handed over, or sent in a round that was cut before an earlier loss: changes of pure-Redis mode
// have a number but no name, and what preceded a round is taken to be there if that round got no
// answer before the loss and was sent again after it.
//
// Whoever notices a loss restores what it has in memory. If nobody has done so yet, it draws a new
// epoch, higher than all known ones, so that all others learn of the loss with their next exchange
// and restore what they know as well.
//
// Restored counts add up with what was counted since, in whatever order nodes restore: for each key
// Redis records how much of a bucket was restored in this epoch, and only the difference is added.
// In an epoch that began with what a loss left behind, the counts found in a bucket are taken as
// restored. This has limits:
//
//   - What was counted between such a loss and its discovery may be mistaken for part of what was
//     lost, and a reset, or counts taken back, that such a loss undid are not done again.
//   - What only one counter knew is gone if that ends before it has noticed the loss. Another may
//     have heard of it when it flushed the same coarse buckets, but not of the fine ones: then only
//     windows of the coarse levels include it.
//   - A second loss before all counters have restored what the first one took may take it for good.
//   - A round whose outcome was unknown at a complete loss may be counted twice if another counter
//     had read it and restores it.
//
// All of this assumes that the state of a partition only ever leaves Redis along with its keys:
// maxmemory-policy must be noeviction. A partition without a state is taken for empty.
//
// # Implementation
//
// The scripts of pure-Redis mode receive and return numbers as MessagePack, which is encoded and
// decoded by hand: the code is hot, and BenchmarkMessagePack compares it with the library it
// replaces.
//
// # Concurrency
//
// A [Store] is safe for concurrent use, except that no two rounds of the same partition may be in
// flight at once. The driver's retries are off, and every exchange is bounded by its context.
package redisstore

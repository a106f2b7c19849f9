// Package redisstore counts each event exactly once in Redis, although many processes count the
// same keys, replies get lost, and Redis may lose data that it has acknowledged.
//
// Each process sends its counts in numbered rounds, and a script applies each number once: see
// "Exactly once". A failover to a replica that lags undoes counts that clients have been promised,
// so every reply carries the version of the data, and each process notices a loss and restores its
// counts from memory: see "Losses". docs/architecture.md has the protocol around it.
//
// [Store] implements syncer.Store. [Direct] runs the operations of pure-Redis mode, as scripts over
// the same layout. [Rules] keeps the versions of the rules.
//
// # Layout
//
// Every key is one Hash, tt:{p17}:NAMESPACE:KEY, where tt is Options.Prefix, with which all names
// begin, and p17 the key's partition. The braces are a hash tag of Redis Cluster: all keys of a
// partition are in one slot, so a script may touch them together. It has three kinds of fields. All
// numbers in them are varints as in package encoding/binary, and the number of events is signed.
//
//	c, WIDTH, GROUP, PAGE
//	    a page of cells of one width, in the order of time: each with how far its index (the time
//	    divided by the width) is from that of the cell before, or from GROUP times 2^24, and the
//	    number of its events. An event that keeps its millisecond is a cell of width 1. A cell
//	    without events, of the finest level, is a mark for events ahead of the present
//	d
//	    the log: cells in any order, each with its width, its index and the number of its events,
//	    which may be negative. What a key has is the sum of its pages and its log
//	v
//	    the version: see "Pure-Redis mode"
//
// Cells are put on a page until it has 64 bytes, so that Redis keeps the Hash in its compact form.
// So the pages are a function of the cells, and an event later than all others of its width changes
// the last page only. Fields are self-describing: processes with different ladders count the same
// keys without agreeing on anything. `twotier stored KEY` shows them in words.
//
// The Hash of the different values of a key (twotier.ValuesKey) has a field for each: a v and the
// eight bytes of its hash (big-endian). The field holds when the value was last seen, in unix
// milliseconds. A round keeps the later time, which needs no number and no record to be exact. In
// place of values that were left out of a sample there are classes, see leaparray.ValueList.
//
// Next to its counts a partition has these keys:
//
//	tt:{p17}!s
//	    a Hash with the state of the partition: e, its epoch, drawn when the partition is first
//	    used and again after each loss; s, whether the epoch began with data that survived a loss
//	    (1) or empty (0); v, the number of changes by anyone; d, how many of these were made in
//	    pure-Redis mode; q, the number of quiet changes; l,
//	    the last change by a round or part of a restoration: its sequence, when it was cut (unix
//	    seconds), and the key of its writer
//	tt:{p17}!w:WRITER
//	    the sequence of the last round, or part of a restoration, of this writer that was applied,
//	    a dot and its nonce, and after a colon the positions of refused keys
//	tt:{p17}!k:PART
//	    a part of the list of the partition's keys: the hash of each, syncer.KeyHash, in 4 bytes
//	    (little-endian), once or several times. The state has c (1) if the list began with the
//	    data and so is complete, and k, the number of the last part. There are at most two
//	    parts: a new one is begun when the one before the last has expired
//	tt:{p17}!r:NAMESPACE:KEY
//	    a Hash that records the restored counts of a key: e, the epoch of the restoration (in any
//	    other epoch the rest is void); d, a log of the cells that were added; for each field that
//	    counts as restored, see "Losses", a copy whose name begins with k; and x if the key was
//	    reset in this epoch, in either mode
//
// A key lives for twice the longest span after its time to live was set: at its creation, and with
// the first count in each bucket of the coarsest level. One span is not enough: a late event may be
// a span old, and a window of a span that ends there reaches back by another one. If the key were
// gone by then, that window would read as empty rather than out of reach, and admit an acquire that
// must be refused. Where fields expire, each lives as long as a key: a page, or the log, from its
// last change on.
//
// The Hash tt:meta holds the values that all users of the data must agree on: the number of
// partitions, the hash seed, the namespaces with hash tags, and how buckets expire. The first store
// to connect writes it. With Options.AnySeed, a store takes the seed it finds there.
//
// The Hash tt:rules holds the kept versions of the rules: v, the number of the newest, i, its ID,
// and each version by its number as JSON (id, who, at in unix milliseconds, text).
//
// The Hash tt:nodes lists the living processes, by names that no two processes share: when the
// entry runs out (unix milliseconds), a space, and the process as JSON.
//
// Outside of a cluster, tt:!d:WRITER:WORKER holds the number of the last batch of a worker of
// pure-Redis mode and, after a colon, which of its groups were changed, unless all were.
//
// # Pages and logs
//
// Lua decodes nothing. A counter that knows all that a key has in Redis sends the pages that it has
// afterwards, and the script writes them blindly if the partition has as many changes as the
// counter knows of. If the counter does not know the key, or others have changed the partition, the
// script appends what is counted to the log, and in the second case returns the key. The counter
// reads a key that it does not know when it flushes it, and sends all of its pages the next time;
// they replace the log.
//
// A key that has folded in memory is rewritten as a whole, at its next flush. The sum of a key
// never changes, except by cells that have left every window. Processes with different ladders fold
// the same key in turns: each makes it as coarse as its ladder demands, and cells that have left
// the windows of a shorter ladder are gone for all.
//
// Quiet rounds, of keys that several nodes count at once, only append to logs, and don't count as
// changes. So a rewrite says how much of the log its pages include, and the script keeps the rest.
//
// # Exactly once
//
// The script applies a round only if its sequence is higher than the stored one, and it stores the
// sequence before it counts anything. A script that Redis refuses (out of memory, read only,
// loading) fails at that first write, with nothing done. So it is always safe to send a round
// again. After the first write nothing ends the script early. A key that can't be counted (a value
// of another type, a command that the user may not run) is reported and skipped, and its partial
// changes are undone.
//
// The counts of a refused key are sent again in another round, with another sequence. They are
// counted twice if two counters have the round, because a handover was not confirmed, and Redis has
// refused the key to both.
//
// A key that is believed to be new comes as a payload of RESTORE. This one command makes it with
// its time to live if nothing is there, in place of EXISTS, HSET and PEXPIREAT. If something is
// there, or the user may not run RESTORE, the events go to the log, and the script returns the key.
//
// # Pure-Redis mode
//
// A [Direct] decides in Go, see package decide, and Redis makes the changes if nothing that they
// depend on has changed since: optimistic concurrency control. A worker takes the operations that
// wait, reads the Hashes of their keys unless it still holds them, and decides the operations one
// after the other, each by what the ones before it have left. Then one script (commit.lua) writes
// the pages that are different now. The keys that some operations share, directly or by way of
// others, are a group: the script changes all of them, or none. It compares
//
//   - the version of each key, the field v of its Hash: a random text that every change in this
//     mode draws anew;
//   - the epoch of its partition, its quiet changes, and its changes without those of this mode (v
//     less d), for whatever else writes the key: rounds, restorations, resets.
//
// The script returns the groups that have changed as they are now, and the worker decides them
// again. An operation that has lost its keys to others several times claims them: for 200 ms, or
// until its next change, nobody else may change them. So a process far from Redis gets its turn.
//
// The script stores the number of its batch, and which groups it changes, before it changes
// anything. A batch whose answer was lost is sent again, and learns what has become of it. A
// refusal is an answer only once the script has found its keys unchanged: it is as exact as an
// admission. If nearly all keys that a worker does not hold turn out not to exist, it takes the
// next ones for new without reading them, and the script changes them only if they are.
//
// # Losses
//
// Redis has lost data if its epoch differs from the one it reported to a counter, or if within the
// same epoch it has fewer changes than it reported, an older sequence than it acknowledged, or
// lacks the last change that it reported, no matter which process made it. Causes are a failover to
// a lagging replica, a restart from an old dump, or FLUSHALL. Other changes that take the place of
// lost ones do not hide the loss, with two exceptions, both about counts that a counter has only
// read, received in a handover, or sent in a round that was cut before an earlier loss: changes of
// pure-Redis mode have a number but no name, and the changes before a round are assumed to be there
// if that round got no answer before the loss and was sent again after it.
//
// A process that notices a loss restores the counts it has in memory. Unless another process has
// already done so, it draws a new epoch, higher than all known ones, so that all others learn of
// the loss with their next exchange and restore their counts as well.
//
// Restored counts add up with later ones, in whatever order nodes restore: for each key Redis
// records which cells were restored in this epoch, and only the difference is added. Nodes know the
// same events at different precision, so sums are compared, see leaparray.MissingCells: for each of
// the widest cells that either the node or the record has, the sum of the cell and everything
// inside it. The record covers the restored counts, not the key's present content, and nothing
// folds there: changes to the key in between make no difference.
//
// The node decides by the records of all keys of a part what is missing, first as if they were
// empty. The script compares the records with those that were decided on. If one differs, it
// restores nothing and returns the records, to be decided on again. Otherwise it stores the
// sequence of the part, and appends the missing cells to the logs of the keys and of their records:
//
//	A restores a minute of 5 events, B the same 5 with their milliseconds: nothing is added.
//	A restores 3 of the 5 with their milliseconds, B all 5 as a minute: 2 are added to the minute.
//	A restores 5 events, others count 2 and the key folds, B restores the same 5: the record still
//	has them apart from the 2, and nothing is added.
//	A's part has no answer and is sent again: the sequence shows that it was applied. If it drew
//	an epoch, A learns of that like everybody else, and restores into it.
//	A restores a key, and it is reset: the record has x from then on, and B's counts stay out.
//	A restores a part, and Redis loses that too: the discovery begins another epoch with new
//	records, and A and B both restore all they know.
//
// In an epoch that began with data that survived a loss, the fields found under a key without a
// record are taken as restored, and copied into its record. This has limits:
//
//   - Counts made between such a loss and its discovery may be mistaken for part of the lost ones,
//     and a reset, or counts taken back, that such a loss undid are not repeated.
//   - Counts that only one counter knew are gone if it ends before it has noticed the loss.
//   - Two nodes that each know different events in one wide cell, while no node knows both, restore
//     as many as the one that knows more.
//   - A second loss before all counters have restored their counts after the first one may make the
//     first one permanent.
//   - A round whose outcome was unknown at a complete loss may be counted twice if another counter
//     had read it and restores it.
//
// All of this assumes that the state of a partition leaves Redis only along with its keys:
// maxmemory-policy must be noeviction. A partition without a state is taken for empty.
//
// # Concurrency
//
// A [Store] is safe for concurrent use, except that no two rounds of the same partition may be in
// flight at once. The driver's retries are off, and every exchange is bounded by its context.
package redisstore

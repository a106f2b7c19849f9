// Package syncer is an embeddable two-tier counter: it counts in memory and keeps a [Store] (Redis)
// up to date in the background. It also works without a store.
//
// # Two numbers
//
// Every bucket of every key is two numbers. Synced is the store's count as last reported, from all
// writers. Pending is this process's own count that the store has not acknowledged. Readers see the
// sum. Only three things ever happen to them: counting adds to pending; an acknowledged flush moves
// a batch from pending to synced, and brings along the counts of other writers; loading a key sets
// synced.
//
// # Partitions
//
// A key hashes to one of a fixed number of partitions, see [twotier.Placement]. A partition is the
// unit of locking, the list of dirty keys, and the unit of flushing: at most one [Round] of a
// partition is in flight to the store. A round that got no answer may or may not have been applied.
// It is sent again, unchanged and with the same sequence number, until there is an answer, and the
// store applies a sequence at most once. So a flush is exactly-once. Because writing rounds of a
// partition never overlap, the counts that one returns are exactly the store's, and synced can be
// set to them without any merging. Separate rounds load keys, concurrently with the writing ones: a
// loaded key is only used if no round that may change it was in flight meanwhile.
//
// Partitions are served in the order in which they become due, because of the flush interval or
// because a caller waits, and each is served once before another is served twice. So waiting
// callers don't starve counts that nobody waits for. If more keys wait than the store accepts in a
// moment, half of a round goes to the longest-waiting keys and half to the largest counts.
//
// With [Options.MaxLag], only as many keys may wait for the store as it accepts within a sixteenth
// of that time, at its last measured pace. An operation that would add one more key waits for room
// first, and is refused with [twotier.ErrBehind] if there is none in time. A key that is already
// waiting for the store needs no room. While the store accepts nothing, memory is the only bound.
//
// In memory, a partition is a lock and the data it guards: a ledger of the keys and of the store's
// state, and the parts that work on it. These flush dirty keys, load keys, restore data that the
// store has lost, and hand the partition off to another counter. The internal packages keys,
// rounds, loans, room and shifts do their bookkeeping, without goroutines.
//
// # Promises
//
// A count that returned without an error is visible at once, and is in exactly one of the two
// numbers until the store has it. It is dropped only when it has left every window. With
// [twotier.AckStore] an operation returns after the store has acknowledged the count, with
// [twotier.AckReplica] and [twotier.AckDisk] once the count would also survive the loss of the
// store's server. An Acquire is decided and counted under the locks of all partitions it touches:
// it is all or nothing, and never lets more than the limit into any true window.
//
// A key that is not in memory is loaded when an operation needs its past. That includes taking
// counts back, but not adding without limits. If the store is a [Lister], a key that it does not
// list is not loaded. Callers wait for the load as long as their context allows and then get
// [twotier.ErrUnavailable]. So does an Acquire if the store answers with an error, for the key or
// for all. While the store is known to be unreachable, answers come from memory and are marked
// (Result.Degraded). If the store has lost acknowledged data, every counter restores its part: it
// sends the store its counts in memory, the store adds the missing ones, and the counter reads the
// key again before a decision relies on it, because others may have counted meanwhile.
//
// Nothing is counted in the store before it has reported which data it has (its epoch), and a late
// round for other data is not applied. The name under which rounds are numbered is used once. If
// the store knows it from another process, such as a copy of this one or one with the same
// configured name, the counter continues under a new name, and nothing is lost.
//
// # Several counters
//
// Counters that share a store share its keys. Each partition has one counter that owns it and
// decides about its keys. [Counter.BeginHandoff], [Counter.HandoffPage], [Counter.ImportHandoff]
// and [Counter.FinishHandoff] move a partition from one counter to another without losing a count
// or a decision: counts that the store has not acknowledged move along as numbered rounds, which
// the store applies once, no matter which counter sends them. A counter refuses operations on
// another counter's keys with [twotier.ErrNotOwner], unless the operation asks for it
// (Op.AllowNonOwner): then the counts of both meet in the store, within three flush intervals, or
// longer under load ([Counter.MaxStaleness]). An Acquire whose keys belong to several counters can
// be reserved first (Op.Reserve).
//
// A counter that needs another one's key very often borrows from it: [Counter.Lend] lends some of
// the room left in the key's limits. The owner treats it as used until it has read the borrower's
// counts ([Counter.FillLoanRequest]) from the store, so no limit is exceeded.
//
// # Memory
//
// Memory is bounded for all partitions together. Clean idle keys are evicted, unflushed ones never;
// when nothing can be evicted, new keys are refused with [twotier.ErrOverload]. When memory is
// full, a partition that uses more than an even share makes room for its own new keys. One that
// uses less takes room from a reserve, which the largest partition replenishes.
//
// # Without a store
//
// All counts stay pending: nothing is flushed, loaded or kept twice, and a key that is not in
// memory has not counted. A full counter forgets the keys that have counted least, wherever they
// are. It shares no keys with other counters.
//
// # Concurrency
//
// All methods of [Counter] are safe for concurrent use, including Close. The package logs changes
// of state to Options.Logger and nothing else. It knows nothing about Redis, HTTP or membership.
package syncer

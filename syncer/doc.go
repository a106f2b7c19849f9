// Package syncer is an embeddable two-tier counter: it counts in memory and keeps a [Store] (Redis)
// up to date behind.
//
// # Two numbers
//
// Every bucket of every key is two numbers. Synced is what the store is known to hold, from all
// writers. Pending is what this process counted and the store has not acknowledged. A reader sees
// their sum. There are three moves and no other: counting adds to pending; an acknowledged flush
// moves a batch from pending to synced, and brings along what other writers counted; loading a key
// sets synced.
//
// # Partitions
//
// A key hashes to one of a fixed number of partitions, see [Placement]. A partition is the shard
// that is locked, the list of dirty keys, and the unit that is flushed: at most one [Round] of a
// partition is on its way to the store. A round without an answer may or may not have been carried
// out, so it is sent again, unchanged and under the same sequence number, until there is one; the
// store carries out a sequence at most once. That makes a flush exactly-once. As rounds that write
// to a partition never overlap, what one brings back is exactly what the store holds, and setting
// synced to it is right without any merging. Keys are loaded by rounds beside those: what a load
// brings of a key counts only if no round that may change the key was under way meanwhile.
//
// Partitions are served in the order in which they come to be due, by the clock or because somebody
// waits, each once before another is served twice: who waits takes no turn from counts that nobody
// waits for. If more waits than the store takes in a moment, half of a round is what has waited the
// longest, and half what has counted most.
//
// With [Options.MaxLag] no more keys may wait for the store than it takes within a sixteenth of
// that, at the pace that was measured last: an operation that would have to wait for the store with
// one more key than that waits for room first, and is refused with [ErrBehind] if there is none in
// time. A key that waits for the store already needs no room. While the store takes nothing memory
// is the bound.
//
// In memory a partition is a lock and what it guards: a ledger, which is what is known of the keys
// and of the store, and the parts that work on it. Those are the flushing of what is dirty, the
// loading of keys, the restoration of what the store has lost and the handoff to another counter.
//
// # What it promises
//
// A count that returned without an error is visible at once and is in exactly one of the two
// numbers until the store has it; it is dropped only when it has left every window. With [AckStore]
// an operation returns after the store has acknowledged, with [AckReplica] and [AckDisk] after what
// it acknowledged would survive it. An Acquire is decided and counted under the locks of all
// partitions it touches, so it is all or nothing, and it never lets more than the limit into any
// true window.
//
// A key that is not in memory is loaded when something needs to know its past, taking back
// included; adding without limits does not. Who asks waits for that as long as its context allows,
// and is told [ErrUnavailable] then. If the store is known to be out of reach, answers come from
// memory and say so (Result.Degraded). If the store lost what it had acknowledged, it is told again
// what memory knows: every counter restores its part, the store adds up what is missing of it, and
// what is known is read again before a decision relies on it, since others may have counted
// meanwhile.
//
// Nothing is counted in the store before it has said what data it has (its epoch), and a round that
// is late for other data is not carried out. A name under which rounds are numbered is used once:
// if the store knows it from another process, a copy of this one or one that was given the same
// name, the counter goes on under another, with nothing lost.
//
// # Several counters
//
// Counters that share a store share the keys: each partition has one that owns it, and so decides
// about its keys. [Counter.BeginHandoff], [Counter.HandoffPage], [Counter.ImportHandoff] and
// [Counter.FinishHandoff] move a partition from one to another without a count or a decision
// getting lost: what the store has not acknowledged goes along as numbered rounds, which the store
// carries out once, whoever sends them. Who asks a counter about a key that another owns is refused
// with [ErrNotOwner], unless the operation says that it is to be carried out all the same
// (Op.AllowNonOwner): then the two meet in the store, within three flush intervals
// ([Counter.StaleAfter]). [Counter.Reserve] is the part of an Acquire whose keys belong to several
// counters.
//
// Memory is bounded for all partitions together: clean idle keys are evicted, unflushed ones never;
// when nothing can be evicted new keys are refused with [ErrOverload]. A partition that uses more
// than an even share makes room by itself when all is used; one that uses less takes it from a
// reserve, which the largest partition fills up again.
//
// # Concurrency
//
// All methods of [Counter] may be called at the same time, Close included. The package logs changes
// of state to Options.Logger and nothing else; it knows neither Redis, HTTP nor membership.
package syncer

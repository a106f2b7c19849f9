// Package storeclock keeps a clock that follows the store's clock while its readings are
// believable.
//
// All nodes that share a store count in buckets of the same time, the store's. A [Clock] is driven
// by the machine's monotonic clock and corrected from time to time; it never goes back. A [Belief]
// decides which readings of the store's clock to follow. It is pure: the caller passes the time. A
// [Keeper] connects the two: it asks the store, and corrects the clock after a suspension of the
// machine.
//
// A Clock and a Keeper are safe for concurrent use, a Belief is not. The package does not know
// about counting, or how to ask a store.
package storeclock

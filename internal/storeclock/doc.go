// Package storeclock keeps a clock that follows the store's, as far as that can be believed.
//
// All nodes that share a store count in buckets of the same time: the store's. A [Clock] is driven
// by the machine's monotonic clock and corrected now and then; it never goes backwards. A [Belief]
// decides which of the store's readings are followed: it is pure, and is told what time it is. A
// [Keeper] ties the two together: it asks the store, and tells the clock what the machine slept
// through.
//
// A Clock and a Keeper may be used by several goroutines at the same time, a Belief by one.
// The package knows nothing of what is counted, or of how a store is asked.
package storeclock

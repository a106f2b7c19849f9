// Package storeclock keeps a clock that follows the store's clock, as far as the store can be
// believed.
//
// All nodes that share a store count in buckets of the same time, the store's. A [Clock] is driven
// by the machine's monotonic clock and corrected from time to time; it never goes back. A [Belief]
// decides which readings of the store's clock to follow. It is pure: the caller passes the time. A
// [Keeper] ties the two together: it asks the store, and tells the clock how long the machine was
// suspended.
//
// A Clock and a Keeper are safe for concurrent use, a Belief is not. The package does not know what
// is counted, or how to ask a store.
package storeclock

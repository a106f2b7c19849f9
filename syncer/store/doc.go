// Package store is the contract between a counter of package syncer and the store that keeps its
// counts of record, such as Redis.
//
// A [Round] is one exchange about one partition: counts to add, keys to read, or both. A [Store]
// applies rounds atomically and each at most once, and detects that it has lost data. Whether a
// round was applied is reported by its Err: nil, [ErrNotApplied], or an unknown outcome.
//
// The package has no state, so it needs no locks: a round belongs to
// the counter, except during a call of Exchange.
package store

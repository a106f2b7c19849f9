// Package hotkeys lets every node count the keys that are too hot for their owner alone, without
// exceeding a limit.
//
// A key is hot while this node forwards, or is forwarded, more operations on it than Options.Rate
// although another node owns it. Then the node borrows from the owner: the owner lends it some of
// what is left of the key's limits, for a short time, and the node counts that much without asking
// (syncer.LoanRequest). Near the limit the owner lends less and less, until it decides about
// everything itself. What is lent counts as used until the owner has read from the store what
// became of it. So a limit is never exceeded. It may be refused too early, by at most what is lent.
//
// Before the owner takes anything back of such a key, it recalls what others have counted: see
// [Recalling].
//
// A [Tracker] finds the keys and exchanges requests with their owners, in the background, while the
// key is hot. It also answers for what this node lends.
//
// A Tracker is safe for concurrent use. It does not know how operations on a key are executed, or
// how requests travel.
package hotkeys

// Package hotkeys lets every node count the keys that are too hot for their owner alone, without
// exceeding a limit.
//
// A key of another node is hot while this node forwards, or is forwarded, more operations on it
// than Options.Rate. Then the node borrows from the owner: the owner lends it part of the key's
// remaining limits, for a short time, and the node counts that much without asking
// (twotier.LoanRequest). Near the limit the owner lends less and less, until it decides about
// everything itself. A loan counts as used in full until the owner has read its actual use from the
// store. So a limit is never exceeded; it may refuse too early, by at most the amount lent.
//
// Before the owner takes back counts of such a key, it recalls the other nodes' counts: see
// [RecallingCounter].
//
// A [Tracker] finds the hot keys and exchanges requests with their owners, in the background, while
// the keys are hot. It also answers requests for this node's own keys.
//
// A Tracker is safe for concurrent use. It is independent of the execution of operations and of the
// transport of its requests.
package hotkeys

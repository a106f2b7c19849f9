// Package decisions writes the decisions of acquires as lines of JSON, for audit and analytics.
//
// There is a line for each verdict: one for each rule that judged a key of an acquire, and one for
// the key's limits that belong to no rule. Dry runs and failed acquires have none. The node that
// received the request writes the line, even if another node decided.
//
// Verdicts of each kind are sampled at random, and lines that can't be written are dropped: nothing
// waits for a line. So the lines are no ledger; the counts are.
//
// A [Stream] is safe for concurrent use.
package decisions

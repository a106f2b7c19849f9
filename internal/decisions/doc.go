// Package decisions writes what acquires decided as lines of JSON, for audit and analytics.
//
// There is a line for each verdict: one for each rule that judged a key of an acquire, and one for
// the limits of the key that are of no rule. Dry runs and acquires that failed have none. A line is
// written by the node that a client asked, whoever decided.
//
// Of the verdicts of each kind a share is chosen at random, and those that can't be written are
// dropped: nothing waits for a line. So the lines are no ledger; the counts are.
//
// A [Stream] is safe for concurrent use.
package decisions

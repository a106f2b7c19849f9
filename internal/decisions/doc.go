// Package decisions describes the decisions of acquires, and writes them as lines of JSON, for
// audit and analytics.
//
// There is a [Decision] for each verdict: one for each rule that judged a key of an acquire, and
// one for the key's limits that belong to no rule. Dry runs and failed acquires have none. The node
// that received the request makes it, even if another node decided.
//
// A [Stream] samples verdicts of each kind at random, and lines that can't be written are dropped:
// nothing waits for a line. So the lines are no ledger; the counts are. A Stream is safe for
// concurrent use.
package decisions

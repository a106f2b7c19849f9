// Package decisions describes the decisions of acquires, for everything that counts, records or
// reports them.
//
// There is a [Decision] for each verdict: one for each rule that judged a key of an acquire, and
// one for the key's limits that belong to no rule. Dry runs and failed acquires have none. The node
// that received the request makes it, even if another node decided, and passes it to each [Sink].
package decisions

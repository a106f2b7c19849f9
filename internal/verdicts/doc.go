// Package verdicts counts a node's decisions by namespace, rule and endpoint: the acquires that it
// allowed, refused, and would have refused if a rule in shadow were on, and those that it allowed
// near a limit. It makes the record of each decision, which the log of refusals and other sinks
// receive.
//
// A decision is counted once, by the node that received the client's request, even if another node
// decides. Dry runs and failed acquires are not counted. An acquire counts once for each rule that
// judges one of its keys, with the verdict of that rule alone, and once for the key's limits
// without a rule.
//
// Counters live in memory and start with the process. Their number is bounded: namespaces and rules
// beyond the bound are counted together under the namespace "*". There is no counter per key.
//
// [Counters] are safe for concurrent use.
package verdicts

// Package verdicts counts what a node decides: how many acquires it allowed, refused, and would
// have refused if a rule were on, by namespace, by rule and by the door that was asked.
//
// A decision is counted once, by the node that a client asked, whoever decides; a dry run is not,
// and neither is an acquire that failed. An acquire counts once for each rule that a key of it is
// judged by, with the verdict of that rule alone, and once for the limits of the key that are of
// no rule.
//
// Counters are in memory and begin with the process. Their number is bounded: what is beyond that
// is counted together under the namespace "*". There is none for a key.
//
// [Counters] are safe for concurrent use.
package verdicts

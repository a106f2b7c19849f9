// Package explain answers why a key is refused: for each rule that applies to it, the limits with
// their counts, what used them up, bans and open holds, and when a request passes again; and the
// recent refusals of the key.
//
// Verdicts are not computed here: each rule judges a dry run of one event. So an explanation agrees
// with an acquire at the same moment. Limits of requests, which belong to no rule, are found in the
// recent refusals.
//
// An [Explainer] is safe for concurrent use, and counts nothing.
package explain

// Package rule defines rules: limits with a name, so that requests can name them instead of
// carrying them.
//
// Rules and counts are independent. Events are counted by key and namespace, whichever rules judge
// them: a new rule has all history at once, and two rules of one namespace judge the same counts of
// a key. Rules for different things need different namespaces.
//
// A [Set] is immutable and safe for concurrent use. A decision that takes several look-ups makes
// them in one Set.
package rule

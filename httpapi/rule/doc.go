// Package rule says what a rule is: limits that have a name, so that requests can name them in
// place of carrying them.
//
// A rule says nothing about counts. What is counted is a key in a namespace, whichever rules judge
// it: a new rule has all history at once, and two rules of one namespace judge the same counts of a
// key. Rules for different things need different namespaces.
//
// A [Set] is immutable and safe for concurrent use. Whoever makes several look-ups for one decision
// makes them in one Set.
package rule

// Package retry waits between attempts, or between the rounds of periodic work, for a fixed time or
// for one that doubles.
//
// A wait ends when its context does. The package starts no goroutines and knows nothing about the
// attempts.
package retry

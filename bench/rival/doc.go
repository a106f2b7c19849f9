// Package rival starts every limiter with the servers that it needs, anew each time, so that runs
// don't share state, and measures the usage of each. There is one list of rivals, which all
// comparisons use. A [Stand] is safe for concurrent use.
package rival

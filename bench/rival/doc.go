// Package rival starts every limiter with the servers that it needs, anew each time, so that no run
// sees what another has left, and measures what each uses. There is one list of rivals, which all
// comparisons use. A [Stand] is safe for concurrent use.
package rival

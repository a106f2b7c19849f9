// Package retry waits between attempts: for a fixed time, or for one that doubles.
//
// Its waits end with their context. It starts no goroutine and knows nothing of what is attempted.
package retry

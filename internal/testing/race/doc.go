// Package race reports whether the tests run under the race detector, and leaves out tests that
// take too long there.
package race

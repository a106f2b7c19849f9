// Package race reports whether the tests run under the race detector.
package race

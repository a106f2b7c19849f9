// Package spantest records spans for tests: a [Recorder] is a trace.Tracer that keeps them, so that
// a test can inspect them. It is safe for concurrent use.
package spantest

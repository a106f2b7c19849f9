// Package redistest runs real Redis servers for tests and benchmarks: one server, a Redis Cluster,
// or a primary with a replica and three sentinels, all on loopback. Each has a separate directory
// that is removed with the test.
//
// A missing binary fails the test and never skips it. When a function that starts a server returns,
// the server is ready: it answers PING, and the process that answers is the one that was started.
// The package only signals processes that it started itself, and these end with the test, on Linux
// even if the test binary is killed.
//
// The binary is redis-server from PATH, or the program named by TWOTIER_TEST_REDIS: Valkey, or
// Redis from 7.0 on. No decision depends on a version string: see [Features].
//
// A [Server] is safe for concurrent use. Functions and methods that take a testing.TB may end the
// test, so call them on the test's goroutine; the others return an error or call Errorf. All waits
// poll, with generous deadlines; nothing relies on a sleep.
//
// It is for Unix only. It knows nothing about the data that twotier stores.
package redistest

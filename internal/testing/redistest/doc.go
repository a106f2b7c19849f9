// Package redistest runs real Redis servers for tests and benches: one server, a Redis Cluster, or
// a primary with a replica under three sentinels, all on loopback, each in a directory of its own
// that goes away with the test.
//
// It promises that a missing binary fails the test and never skips it; that a server is ready (it
// answers PING, and it is this test's own process that answers) when a function that starts it
// returns; that it signals only processes that it started itself; and that they end with the test,
// on Linux also when the test binary is killed.
//
// The binary is redis-server from PATH, or what TWOTIER_TEST_REDIS names: Redis from 7.0 and Valkey
// work. Nothing is decided from a version string: see [Features].
//
// The methods of a [Server] may be called from several goroutines at once. Functions and methods
// that take a testing.TB may end the test and so belong to its own goroutine; the others report
// trouble as an error or with Errorf. Times are generous deadlines of polls; nothing sleeps and
// hopes.
//
// It is for Unix only, and it is no place for helpers that know what twotier stores.
package redistest

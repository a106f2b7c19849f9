// Package proctest runs real twotier processes for tests, sends them traffic, and keeps a ledger of
// that traffic.
//
// A [Program] is the command, built once per test binary. A [Process] is one twotier serve; it ends
// with its test, and fails the test if its log shows a race, a panic or an internal error.
// [Traffic] is a set of workers that count until they are stopped. They record their requests in a
// [Ledger] with the outcome: acknowledged (A), failed, or unknown (U). Once everything is healed
// and nothing is pending, the count R of every key must satisfy A - L <= R <= A + U, where L is the
// loss that a fault is allowed to cause. [Stored] reads R from Redis, [Process.Counted] from a
// node.
//
// Helpers wait for events with generous deadlines ([Patience]). Except for [Recent], all types are
// safe for concurrent use, but methods that may end the test belong on the test's goroutine.
package proctest

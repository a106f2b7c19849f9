// Package proctest runs real twotier processes for tests, sends them traffic, and keeps a ledger of
// it.
//
// A [Program] is the command, built once per test binary. A [Process] is one twotier serve; it ends
// with its test, and fails the test if its log shows a race, a panic or an internal error.
// [Traffic] is workers that count until they are told to stop. They write to a [Ledger] what they
// sent and what came back: acknowledged (A), failed, or unknown (U). Once everything is healed and
// nothing is pending, what was counted (R) must hold A - L <= R <= A + U for every key, where L is
// what a fault is allowed to lose. [Stored] reads R from Redis, [Process.Counted] from a node.
//
// Helpers wait for events with generous deadlines ([Patience]). The methods of all types may be
// called from several goroutines at once; those that may end the test belong to its own.
package proctest

// Package faulttest breaks the dependencies of a single node while clients count, and then checks
// that every count arrived exactly once. It has only tests.
//
// The node is the real program, built with the race detector if the tests are, and Redis is the
// real one. Every worker keeps a ledger of its requests and their outcomes: acknowledged (A),
// failed, or unknown (U). Once everything is healed and nothing is pending any more, the counts in
// the node (R) and in Redis must agree, and A - L <= R <= A + U for every key, where L is the loss
// that a fault is allowed to cause: nothing, unless the test states otherwise.
//
// Tests wait for events with generous deadlines. No measured time decides whether one passes.
package faulttest

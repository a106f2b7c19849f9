// Package faulttest breaks what a single node depends on while clients count, and then checks that
// every count arrived exactly once. It has only tests.
//
// The node is the real program, built with the race detector if the tests are, and Redis is the
// real one. Every worker keeps a ledger of what it sent and what came back: acknowledged (A),
// failed, or unknown (U). Once everything is healed and nothing is pending any more, what the node
// says (R) and what Redis holds must agree, and A - L <= R <= A + U for every key, where L is what
// a fault is allowed to lose: nothing, unless the test says otherwise.
//
// Tests wait for events with generous deadlines. No measured time decides whether one passes.
package faulttest

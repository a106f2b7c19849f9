// Package clustertest runs clusters of real twotier processes over a real Redis. It stops, kills,
// pauses and separates nodes while clients count, and then checks that every count arrived exactly
// once and that every node gives the same answer. It has only tests.
//
// Every test keeps a ledger (see package proctest) and prints it: A is acknowledged, U unknown, R
// the count that every node and Redis report once everything is healed and flushed, and L the loss
// that the fault is allowed to cause.
//
// Tests that need network namespaces (faults 12 to 16) only run as root, on a bridge with a private
// network that is removed afterwards. If a run is killed, the next one removes its leftovers. -long
// runs tests that take minutes, -curve measures more points of the excess across a split, and -runs
// repeats the measurement of how long it takes to notice a failure. No measured time decides
// whether a test passes.
package clustertest

// Package clustertest runs clusters of real twotier processes over a real Redis, stops, kills,
// pauses and parts them while clients count, and then asks whether every count arrived exactly once
// and every node gives the same answer. It consists of tests only.
//
// Every test keeps a ledger (see package proctest) and prints it: A acknowledged, U unknown, R as
// every node and Redis itself say when all is healed and flushed, L what the fault is allowed to
// lose.
//
// What needs network namespaces (faults 12 to 16) runs as root only, on a bridge with a private
// network of its own that is removed afterwards; what a run that was killed left behind, the next
// one removes. What takes minutes runs with -long, more points of the curve of the excess across a
// split with -curve, and -runs repeats the measurement of how long a failure takes to be noticed.
// No measured time decides whether a test passes.
package clustertest

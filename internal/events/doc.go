// Package events remembers what has changed on a node and in its cluster: who joined, left and
// crashed, the mode, the rules, whether Redis and the clock could be relied on, and overload.
//
// A [Log] compares each [State] that it is shown with the one before it, so no part of a node has
// to report anything. It keeps a bounded number of events in memory, which end with the process;
// what happens and ends between two looks is not seen. Every node has its own, and [Merge] makes
// one of them.
//
// [Log] is safe for concurrent use.
package events

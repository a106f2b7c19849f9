// Package events records changes on a node and in its cluster: members that join, leave or crash,
// the mode, the rules, and the reliability of Redis and the clock.
//
// A [Log] compares each [State] that it receives with the previous one, so no part of a node has to
// report anything. It keeps a bounded number of events in memory, until the process ends; a change
// that begins and ends between two states goes unseen. Every node has a log, and [Merge] combines
// them.
//
// [Log] is safe for concurrent use.
package events

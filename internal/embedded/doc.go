// Package embedded is a store inside the process, for trying twotier without Redis. Its data ends
// with the process, and no other process sees it. It behaves as syncer.Store promises, so
// everything built on a store works the same.
//
// Its memory is bounded. When it is full, the store drops keys that have expired, then those with
// the smallest counts, and among equals those that expire first. A [Store] is safe for concurrent
// use.
package embedded

// Package embedded is a store inside the process, for trying twotier without Redis. Its data ends
// with the process, and no other process sees it. It implements syncer.Store in full, so everything
// built on a store works the same.
//
// Its memory is bounded. When it is full, the store compares random keys, and drops expired ones
// first, then the ones with the smallest counts, and among equals the ones that expire first. A
// companion, such as a ban or a lease, is dropped after its key. A [Store] is safe for concurrent
// use.
package embedded

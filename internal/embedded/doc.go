// Package embedded is a store inside the process: the nodes of a demo share it as other nodes share
// Redis, and tests look into it. Its data ends with the process. It implements syncer.Store in
// full. A node without Redis has no store at all.
//
// Its memory is bounded: a full store refuses to write. A [Store] is safe for concurrent use.
package embedded

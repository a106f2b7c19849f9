// Package node is one twotier server without its network side: it takes an operation, decides who answers it, and keeps
// the parts running in the right order.
//
// In two-tier mode operations are counted in memory by a syncer.Counter, which flushes to the store behind. In Redis mode
// every operation is a script in Redis. A two-tier node whose memory is full of counts that can't be evicted serves new keys
// from Redis as well.
//
// The time that events are counted at follows the store's clock, see [Clock].
//
// For now a node owns every partition. It knows no wire format: the HTTP side is package httpapi.
package node

// Package outbox queues entries for a slow receiver, such as a file, a webhook or a collector,
// without ever blocking the callers that add them.
//
// A [Queue] is bounded, and one goroutine sends its entries, in batches and in order. A batch that
// fails is tried again, after growing pauses, as often as the options say. If the queue is
// full, or a batch has failed for good, entries are dropped and counted. The server's log gets one
// message when sending fails, and one when it works again.
//
// A Queue is safe for concurrent use.
package outbox

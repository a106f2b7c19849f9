// Package rounds tracks the rounds of one partition between memory and the store: waiting keys,
// rounds in flight, acknowledgements, and the store's last report.
//
// A key with something to flush is on the [DirtyList] and has drawn a ticket. A [Round] is one
// exchange: the half that a store gets, and the half that only the counter needs. The [Outbox]
// holds the rounds without an acknowledgement, and numbers new ones. [PendingLoads] holds the keys
// that operations wait to have loaded, [StoreState] the store's reports, and a [Backoff] the time
// of the next retry.
//
// # Promises
//
// Tickets are acknowledged in the order in which they were drawn, so a count is in the store once
// its ticket is. At most one writing round of a partition is in flight, and an unanswered one stays
// unchanged. A writer's sequences are used once. An answer counts as news if it reports more
// changes than this counter has made.
//
// # Concurrency
//
// Nothing here is safe for concurrent use: the caller holds the lock of the partition.
//
// # Not included
//
// The package knows neither counts nor memory: rounds refer to entries by their places, and the
// caller cuts, sends and settles the rounds.
package rounds

// Package loans does the bookkeeping of events that are promised but not counted yet: loans between
// counters, and reservations.
//
// A key in high demand is shared: its owner lends parts of the room left in the key's limits to
// other counters, which decide about these events without asking. The owner's side is [Key.Lend],
// the borrower's side a [Credit]. Borrower and owner exchange a [twotier.LoanRequest] and a
// [twotier.LoanResponse] several times a second. An operation that spans several owners reserves
// its events first, see [Reservations].
//
// # Promises
//
// Events that are lent and that the owner has not read from the store yet count as used in all of
// its decisions, wherever in the window they may lie. So a late or lost message can't exceed a
// limit: it only makes the owner refuse too early. The figures of a loan only grow, so a request
// may be repeated or lost.
//
// A credit ends for the borrower no later than the loan ends for the owner: the borrower measures
// its time from before the request, the owner from the receipt, plus a margin for their clocks. An
// owner that has lost track of a loan, because it took the key over or because no request came in
// time, first takes the loan back, and lends again only the room left in the limits.
//
// # Time
//
// The package reads no clock. The argument now is the local time with its monotonic part, for the
// lifetime of loans; ms is the counter's clock in unix milliseconds, for the time of events, and
// may step.
//
// # Concurrency
//
// Nothing here is safe for concurrent use: the caller holds a lock. The package knows neither the
// counter nor the store. Its caller flushes and reads the shared keys, and reports that with
// [Key.BeginRead] and [Key.EndRead].
package loans

// Package twotier holds the words that all parts of twotier share, a counter of events in sliding
// windows: operations and their results, limits, rules, grants, placements and errors.
//
// An [Op] counts, reads or acquires. It has a [Check] for each key, with its [Limit] values. An
// acquire counts only if all limits of all checks hold; a [Result] reports the counts that the
// decision was based on, their bounds, and how long to wait after a refusal. A window of any length
// that the namespace covers is read when it is asked for, so a new limit has its history at once. A
// limit may follow the calendar instead: a [Period] is every day or month of a time zone.
//
// # Embedding
//
// A program that counts by itself, without a server, needs three packages:
//
//   - package syncer has the counter. It counts in memory and flushes to a store in the background.
//   - package redisstore has the store, in Redis. Counters in several processes share its counts.
//   - this package has the words for both.
//
// The example shows all of it. A program that asks a server uses package httpapi/client instead,
// or any HTTP, Redis or Envoy client.
//
// # Errors
//
// [ErrUnavailable] and [ErrOverload] mean that nothing was counted and that a later attempt can
// succeed. [ErrUnknownOutcome] means that the events may have been counted. An [InvalidError]
// refuses an operation that can never succeed. All errors of operations wrap one of these, or
// [ErrClosed] or [ErrNotOwner].
//
// Package twotier does not count and has no state. Its values are safe for concurrent use as long
// as nobody changes them.
package twotier

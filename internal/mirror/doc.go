// Package mirror compares twotier with the limiter that it may replace. The application keeps its
// old limiter and posts each of its verdicts; the mirror asks twotier the same question in the
// background, and reports how often the two agree, which keys differ, and why.
//
// A [Mirror] counts the real events in twotier: an event that the old limiter allowed
// is charged, whatever twotier's verdict is, and an event that it refused is only asked about. So
// a difference changes no later answer, and twotier's counts are those of the application.
//
// It finds the reasons for differences by following the old verdicts with simple models of
// limiters: fixed windows, token buckets and others, see [Reason]. A model that predicts the old
// verdict where twotier differs explains the difference; if several do, the one that has predicted
// most verdicts overall is reported.
//
// The application never waits: [Mirror.Accept] puts verdicts into a queue, and drops and counts
// them if it is full. All memory is bounded: the queue in verdicts and bytes, the models in keys,
// the report in keys that differ.
//
// A Mirror is safe for concurrent use. It compares verdicts in the order of their times, as far as
// they arrive within 100 ms of each other. It changes nothing in the old limiter, and sends
// a verdict to twotier once: what gets lost is counted as an error.
package mirror

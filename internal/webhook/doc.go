// Package webhook posts warnings to a webhook: limits of rules whose counts have reached the rule's
// warning level.
//
// A [Notifier] sends the first crossing of each level by a key, and no other one of that key and
// limit for the length of the limit's window. It remembers at least the last 32,768 crossings.
// Beyond that it forgets some early, which repeats a notification and misses none. Each node of a
// cluster remembers its own requests, so several nodes may notify of one key.
//
// A request body is a JSON list of up to 50 objects with the fields time (RFC 3339, UTC), node,
// namespace, key, rule, window, max, count and at (the level, in percent), and, if they are true,
// distinct (a limit on different values) and shadow (the rule refuses nothing). Failed requests are
// repeated a few times, see package outbox, unless the answer is final: a redirect, or another
// status below 500 except 408 and 429. So a notification may arrive twice.
//
// Nothing waits for the webhook. Only the host of the URL is ever logged, because the rest may be a
// credential.
//
// A Notifier is safe for concurrent use.
package webhook

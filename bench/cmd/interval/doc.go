// Command interval measures what the flush interval trades: the work that is left to Redis, how old Redis's counts and those
// of another counter are, and how far two counters that share a key can overshoot its limit. It also sends a steady stream of
// distinct keys, the worst case for a counter that flushes in batches: what Redis has not acknowledged must stay bounded.
package main

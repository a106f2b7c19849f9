// Command flush measures the work that counting leaves to Redis. First, every add of a steady stream has a key of its own,
// the worst case for a counter that flushes in batches: what Redis has not acknowledged must stay bounded. Then twotier and
// the limiters that live in Redis get the same traces under the same rules, and Redis says how many commands and how much
// processor time each event took.
package main

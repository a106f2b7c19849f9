// Package limiter has the compared limiters, behind one small interface: limiters that keep
// everything in Redis, with Lua scripts (one file each), a pipeline or redis_rate; sentinel and
// gubernator in this process; twotier as a library and over HTTP; and an exact log in memory that
// serves as the judge.
//
// The time of an event is an argument, so a recorded trace gives the same decisions whenever it is
// replayed; only redis_rate, sentinel and gubernator ignore it and use their own clocks. A window
// of W milliseconds that ends at t holds the events with t-W < ts <= t. All but redis_rate and
// gubernator, which check one rule after the other, count only admitted events.
//
// The rivals are written as a good team would write them: one round trip per decision, bounded
// commands where Redis has them, keys that expire by themselves. Where two variants are common
// (which sub-windows a Hash sums), both are here. None guards against two checks of one call that
// name the same key.
//
// Everything except Exact is safe for concurrent use.
package limiter

// Package limiter holds the ways of limiting that are compared, behind one small interface: those
// that keep everything in Redis, by Lua scripts (each in a file of its own), a pipeline or
// redis_rate; sentinel and gubernator within this process; twotier, as a library and over HTTP; and
// the exact log in memory that serves as the judge.
//
// The time of an event is an argument, so a recorded trace gives the same decisions whenever it is
// replayed; redis_rate, sentinel and gubernator go by their own clocks, whatever they are told. A
// window of W milliseconds that ends at t holds the events with t-W < ts <= t. All but redis_rate
// and gubernator, which ask for one rule after the other, count only what they admit.
//
// The rivals are written the way they are written in the field, with the care that a good team
// would take: one round trip per decision, every command bounded where Redis has a bounded form of
// it, keys that expire by themselves. Where two habits exist (which sub-windows a Hash sums), both
// are here. None guards against two checks of one call naming the same key.
//
// Everything but Exact may be used from several goroutines at once.
package limiter

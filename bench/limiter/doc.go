// Package limiter holds the ways of limiting that twotier is compared with, behind one small
// interface: five that keep everything in Redis, each one Lua script per decision; the exact log in
// memory that serves as the judge; and twotier itself over HTTP.
//
// The time of every event is an argument, so a recorded trace gives the same decisions whenever it
// is replayed. A window of W milliseconds that ends at t holds the events with t-W < ts <= t. All
// of them count only what they admit.
//
// The rivals are written the way they are written in the field, with the care that a good team
// would take: one round trip per decision, every command bounded where Redis has a bounded form of
// it, keys that expire by themselves. Where two habits exist (which sub-windows a Hash sums), both
// are here. None guards against two checks of one call naming the same key.
//
// Everything but Exact may be used from several goroutines at once.
package limiter

// Package storetest is the conformance suite of syncer.Store. It checks, from the outside, what a
// counter relies on, for any store.
//
// [Run] asks for an empty store for each test. A store can reveal more about itself by implementing
// [TTLer] and [Spoiler]. Random tests print their seed; -seed repeats one, see [Seed].
//
// Numbers must be exact as follows. Loaded is exact in the whole range of int64. Stored is exact up
// to 2^53 on either side of zero and may be rounded to the nearest float64 beyond, because Redis
// computes it in Lua. Overflow of int64 is not tested here: a store refuses the key, but servers
// that stand in for Redis don't.
//
// Writers stand for processes. The suite sends rounds of different writers for the same partition
// concurrently, which a single counter never does.
package storetest

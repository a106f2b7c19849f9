// Package storetest is the conformance suite of syncer.Store: what a counter relies on, tried from
// outside on any store.
//
// [Run] asks for an empty store for each test. A store may tell more of itself by implementing
// [TTLer] and [Spoiler]. Random tests print their seed; -seed repeats one, see [Seed].
//
// What must hold of numbers: Loaded is exact in the whole range of int64; Stored is exact up to
// 2^53 on either side of zero and may be rounded to the next float64 beyond, as Redis computes it
// in Lua. What happens on overflow of int64 is not tested here: a store refuses the key, but
// stand-ins for Redis don't.
//
// Writers stand for processes: rounds of different writers are sent at the same time for the same
// partition, which one counter never does.
package storetest

// Package storetest is the conformance suite of syncer.Store. It checks, from the outside, the
// behavior of a store that a counter relies on.
//
// [Run] opens an empty store for each test. A store can reveal more about itself by implementing
// [TTLer], [Spoiler] and [Loser]. Random tests print their seed; -seed repeats one, see [Seed].
//
// Numbers must be exact as follows. Loaded is exact in the whole range of int64. Stored is exact up
// to 2^53 on either side of zero and may be rounded to the nearest float64 beyond, because Redis
// computes it in Lua. Overflow of int64 is not tested here: a store refuses the key, but stand-ins
// for Redis don't.
//
// # Cells
//
// A cell that was counted in and is zero stays, as in a Redis Hash, and folds like any other cell.
// So does a mark: a zero that was added. A fold makes no cell of zero. A restoration compares
// counts only: the missing part is leaparray.MissingCells without cells of zero on either side.
// Marks are added, and are no knowledge of the events in their bucket.
//
// A round that has folded a key and is sent again reports the current cells. So does a part of a
// restoration, of all cells of its keys, because the store may have the events in others than the
// writer. It does not fold them.
//
// # Writers
//
// Writers stand for processes. The suite sends rounds of different writers for the same partition
// concurrently, which a single counter never does.
package storetest

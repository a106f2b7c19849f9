// Package room decides how many keys may wait for a slow store, so that none waits longer than a
// given time, the lag.
//
// A counter accumulates changes of keys in memory and sends them to a store, some keys in each
// exchange. A [Room] measures how many keys the store accepts in a second, and bounds the backlog,
// which is the keys that wait for the store, accordingly. An operation that adds one more key to
// the backlog needs room. One that changes a key of the backlog needs none. Without room, the
// operation waits in line ([Room.Wait]) or is refused, with an estimate of when to try again
// ([Room.ExpectedWait]).
//
// # Bound
//
// Room that was granted can't be revoked, so little is granted. Known keys may fill the backlog up
// to the number of keys that the store accepts in a sixteenth of the lag, at its last measured
// pace, and new keys up to half of that. So a flood of new keys leaves room for known ones. The
// rest of the lag is for a store that suddenly becomes slower. If it becomes k times slower, the
// backlog takes k/16 of the lag. The caller may let a key wait for a quarter of the lag before
// that: under load keys linger until [Room.IsFilling], and the keys with the largest counts have
// half of each round until the oldest key has waited for a quarter. So no key waits longer than
//
//	lag · (k/16 + 1/4)
//
// which is the lag at k = 12. docs/guarantees.md promises k = 10.
//
// The bound is never below one key. Before the first exchange the store is assumed to be slow: it
// accepts 256 keys in half of an exchange's timeout. The weight of a measurement drops to a third
// with each second spent on exchanges, so the pace of an idle store stays as it was.
//
// # Promises
//
// There are two classes of keys, known and new, with a line of waiting operations each. A line is
// first come, first served. Free room goes to known keys first. An operation finds no room while
// others of its class wait, or of a class before it: nobody is overtaken, and new keys don't hold
// up known ones. [Room.RetryAll] ends all waits; an operation that still needs room then joins its
// line anew.
//
// Granted room counts as used from the grant until [Room.Release], which returns it, used or not.
// An operation that gives up at the moment of its grant returns it too, so no room is lost. After
// [Room.Close] nobody waits: every operation checks again at once.
//
// The backlog may exceed its bound: when the pace drops, when keys are added without asking, and
// because several callers may see the last room at the same time.
//
// # Concurrency
//
// All methods are safe for concurrent use. [Room.HasRoom] is called for every operation: it reads a
// few atomic numbers, takes no lock, and is inlined. The lock of the lines is not held while
// anything blocks, nor during the flush function that is passed to [New].
//
// # Not included
//
// The package knows neither the counter nor the store. The caller decides which class a key
// belongs to, whether a key is in the backlog, whether room matters at all (while the store is
// unreachable, only memory bounds the backlog), how long an operation may wait, and what an
// exchange contains. It tracks the backlog itself and reports its changes ([Room.AddOwed]). It
// measures how long exchanges take ([Room.Record]): the package uses timers for waits, and reads no
// clock.
package room

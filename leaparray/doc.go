// Package leaparray is the arithmetic of sliding windows over buckets: which buckets a window
// touches, how a bucket is counted, what a window sums to and when it will have room again.
//
// A [Ladder] is a list of levels, each a number of buckets of one width: the default one has 1 s, 1
// m and 15 m buckets that cover a minute, an hour and a day. One event is counted in the current
// bucket of every level; a window of any length is read from the finest level that covers it, so
// which windows will be asked for need not be known when events are counted.
//
// A [Counter] holds the buckets of one key in one flat block of words without pointers, which lives
// wherever its owner puts it (a slice of its own, an arena). A level with few live buckets costs
// one word for each; a busy one becomes a ring in which every slot holds the running total up to
// its bucket, so that the sum of any range of buckets is one subtraction, whatever its length.
// Slots are found by bucket index modulo the number of slots, the LeapArray of Alibaba's Sentinel;
// running totals over a ring are the summed-area table of Crow (1984) in one dimension. The index
// of the newest bucket and its count change together, and a slot that fell behind the newest bucket
// reads as zero.
//
// A [View] reads one or two counters as their sum, with bounds: a window rarely starts on a
// bucket's edge, so every count is given as the sum without its oldest bucket (Lo), with it (Hi),
// and interpolated (Count). The true number of events lies between Lo and Hi.
//
// A level keeps what lies within its reach of the newest bucket that was ever counted in it, so
// what it holds says by itself how far back it is complete: a window is read from the finest level
// that covers it and reaches back to where it begins, else from a coarser one, else not at all.
// That is as true of windows that end in the past. For it to hold the newest bucket of a level must
// be kept, and passed on to wherever the counts are kept, even if it has come to zero (see
// [Ladder.Mark]): what was dropped because of it would seem never to have been there. A level whose
// newest bucket ends before one of a coarser level begins has lost some, and is passed over. Where
// buckets are lost by age in any case, a level is complete as far back as it reaches from now
// ([View].Now).
//
// All times are unix milliseconds, and all windows are half open at their older end: the window of
// length W that ends at t holds the events with t-W < time <= t.
//
// The package has no clock, lock, goroutine or I/O. A Counter is not safe for concurrent use; a
// Ladder is immutable.
package leaparray

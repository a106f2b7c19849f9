// Package leaparray is the arithmetic of sliding windows over disjoint cells: it decides where an
// event is counted, when a cell folds into a wider one, how many events a window has, and when it
// will have room again.
//
// # Cells
//
// A cell is a stretch of time and the number of events in it. Every event is in exactly one cell:
// in a bucket of the finest level whose span its age has not passed, or in a cell of a single
// millisecond if it is among the newest of its key. So the cells of a key sum to its events, and a
// window is the sum of the cells that it touches.
//
// A [Ladder] is a list of levels, each a number of buckets of one width. Each width divides the
// next one, so a bucket lies within one bucket of the next level, and folds into it once it is
// older than the span of its level. Two copies of a key that fold at different times have the same
// events at different precision. Both have the same sum, and the bounds of both are right.
//
// # Events that keep their millisecond
//
// While fewer than Ladder.ExactEvents events are newer than an event, it keeps its millisecond,
// however old it is. A limit of at most ExactEvents is then decided exactly as by a log of
// timestamps: if a window reaches no further back than the oldest of these events, it is exact; if
// it reaches further back, it has at least ExactEvents of them. A millisecond folds into its bucket
// once ExactEvents events are later than the bucket, so a busy key has at most the milliseconds of
// about two buckets besides. If that is more than 2,000, because the finest bucket is wider than a
// second, they fold as well, and windows have the precision of buckets. A key without such a limit
// uses the ladder's Blurred, in which no event keeps its millisecond.
//
// # Memory
//
// A [Counter] holds the cells of one key in a flat block of words without pointers, which can live
// anywhere: in a slice or in an arena. A level with few live buckets takes one word per bucket. A
// busy level becomes a ring whose slots hold running totals, so that the sum of any range of
// buckets is one subtraction, however long the range: the summed-area table of Crow (1984) in one
// dimension. A bucket's slot is its index modulo the number of slots, as in the LeapArray of
// Alibaba's Sentinel.
//
// # Conventions
//
// All times are unix milliseconds, and windows are half open at the older end: the window of length
// W that ends at t holds the events with t-W < time <= t. An event may lie up to [MaxAhead] ahead
// of the present. An event ahead that is counted in a bucket needs a mark in the bucket after it
// ([Ladder.BucketAfter]): until the present has reached the mark, the bucket of the present may
// hold events that lie ahead, and the lower bound of a window leaves them out.
//
// The package has no clock, locks, goroutines or I/O. A Counter is not safe for concurrent use; a
// Ladder is immutable.
package leaparray

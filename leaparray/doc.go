// Package leaparray is the arithmetic of sliding windows over buckets: which buckets a window
// touches, how an event is counted, what a window sums to, and when it will have room again.
//
// A [Ladder] is a list of levels, each a number of buckets of one width. The default ladder has 1
// s, 1 m and 15 m buckets that cover a minute, an hour and a day. Every event is counted in the
// current bucket of each level, and a window of any length is read from the finest level that
// covers it. So the windows to be read need not be known when events are counted.
//
// A [Counter] holds the buckets of one key in a flat block of words without pointers, which can
// live anywhere: in a slice of its own or in an arena. A level with few live buckets takes one word
// per bucket. A busy level becomes a ring whose slots hold running totals, so that the sum of any
// range of buckets is one subtraction, however long the range. A bucket's slot is its index modulo
// the number of slots, as in the LeapArray of Alibaba's Sentinel; running totals over a ring are
// the summed-area table of Crow (1984) in one dimension. The index of the newest bucket and its
// count change together, and a slot that has fallen behind the newest bucket reads as zero.
//
// A [View] reads one counter, or two as their sum. Because a window rarely starts on the edge of a
// bucket, every result has bounds: the sum without the oldest bucket (Lo), with it (Hi), and
// interpolated (Count). The true number of events lies between Lo and Hi.
//
// # How far back a level is complete
//
// A level keeps the buckets that are within its reach of the newest bucket ever counted in it. So
// its content alone says how far back it is complete, and a window is read from the finest level
// that covers it and reaches back to its start, or from a coarser one, or not at all. The same goes
// for windows that end in the past.
//
// For this to work, the newest bucket of a level must be kept, and copied wherever the counts are
// copied, even when its count has dropped to zero (see [Ladder.Mark]); otherwise the buckets that
// it pushed out would look as if they had always been empty. A level whose newest bucket ends
// before that of a coarser level begins has lost buckets and is skipped. Where buckets are also
// lost by age, a level is only complete as far back as it reaches from the present (View.Now).
//
// # Events ahead of the present
//
// An event may lie up to [MaxAhead] ahead of the present. Whoever counts one marks the bucket after
// it, see [Ladder.Beyond]. While the newest bucket of the finest level is later than the present,
// Lo leaves out what may lie ahead; otherwise it includes all of the present bucket.
//
// # Conventions
//
// All times are unix milliseconds, and windows are half open at the older end: the window of length
// W that ends at t holds the events with t-W < time <= t.
//
// # Others with other ladders
//
// Several processes may count the same keys by different ladders: each counts in the buckets of its
// own levels. What is in a level by which only some count is not complete. [StoredLevels] say so,
// and how levels are numbered where counts are stored; whoever knows of the others provides them,
// see [Ladder.StoredAs].
//
// The package has no clock, locks, goroutines or I/O. A Counter is not safe for concurrent use; a
// Ladder is immutable.
package leaparray

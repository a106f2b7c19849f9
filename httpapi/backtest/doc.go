// Package backtest says what a rule would do: which keys it would refuse now, and how many of the
// events of the last day it would have refused, from the buckets that are kept of each key.
//
// [Replay] is the arithmetic for one key. Its history is cut into segments, each of which is a cell
// of the key: the millisecond of one of its newest events, or the bucket of the level that the age
// of its events calls for. What is known of a segment is how many events it has, but not when in it
// they were. So the result has bounds, which hold for any times that the events may have had:
//
//   - A rule lets at most max events through in any window. So of the events in a run of segments
//     that k windows cover, all but k x max were refused; the lower bound is the largest sum over
//     runs that don't overlap.
//   - An event is refused only if the window that ends with it is full. So in the segments that
//     this window touches, at least max events were let through, and at most the others refused; a
//     segment whose window never holds more than max has no refusals.
//
// The replayed rule judges from the beginning of what is kept, in the place of whatever rules
// judged then. It is asked for each event by itself: an acquire for several is refused as a whole,
// and so may be refused with more events than the bounds say. Acquires that were refused have left
// no events, unless they were counted all the same, and can't be replayed.
//
// [Run] finds the keys to look at, the busiest and the most refused ones of the namespaces in which
// rules count, and collects what the rules would do. It knows nothing of nodes: a [Source] reads
// the keys. Nothing is counted, and nothing is kept after it returns. All functions are safe for
// concurrent use.
package backtest

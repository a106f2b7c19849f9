// Package backtest predicts the effect of a rule: which keys it would refuse now, and how many of
// their events of the last day it would have refused, judging by the buckets kept for each key.
//
// [Replay] is the arithmetic for one key. It cuts the key's history into segments. A segment is a
// cell of the key: the millisecond of one of its newest events, or a bucket of the level that the
// age of the events calls for. A segment's number of events is known, but not their times within
// it. So the result has bounds, which hold for any times that the events may have had:
//
//   - A rule lets at most max events through in any window. So of the events in a run of segments
//     that k windows cover, all but k x max were refused; the lower bound is the largest sum over
//     runs that don't overlap.
//   - An event is refused only if the window that ends with it is full. So in the segments that
//     this window touches, at least max events were let through, and at most the others refused; a
//     segment whose window never holds more than max has no refusals.
//
// The replayed rule judges from the beginning of the kept history, in place of the rules of that
// time. It judges each event by itself: a real acquire for several events is refused as a whole, so
// more events may be refused than the bounds allow. Refused acquires have left no events, unless
// they were counted anyway, and can't be replayed.
//
// [Run] selects the busiest and the most refused keys of the namespaces in which the rules count,
// and reports the rules' effect on them. It is independent of nodes: a [Source] reads the keys.
// Nothing is counted, and nothing is kept after it returns. All functions are safe for concurrent
// use.
package backtest

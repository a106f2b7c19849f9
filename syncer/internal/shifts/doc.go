// Package shifts determines when the partitions of a batcher are due by the clock: in groups, one
// after the other, each once in an interval.
//
// A [Shift] is a group. One whose partitions have nothing to do rests, and costs nothing, until it
// is roused or its rest is over. A [Plan] has a timer for the shift that is due next.
//
// All methods are safe for concurrent use. The package knows partitions only by their positions.
package shifts

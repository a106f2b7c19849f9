// Package imports reads the state of other rate limiters from Redis and counts it in twotier, each
// event once and at its own time.
//
// A [Source] finds the keys that match a [Pattern] and reads the events of each: the elements of a
// sorted set or a list, sub-windows in a hash, fixed and weighted windows in strings, or the part
// of a GCRA's burst that is in use. It only reads. An [Import] compares the events with the marks
// of earlier imports and counts the rest.
//
// # Exactly once
//
// A mark is a counter beside the key, in the same partition (twotier.ImportedNamespace). It counts
// the events that one source has contributed, at their times. One acquire counts an event and its
// mark, and only if the mark still has the count that the import expects. So an import that was
// killed, repeated, or runs twice at the same time counts nothing twice, with any number of nodes
// and through crashes: a node that loses an event loses the mark with it.
//
// Times decide which events of a key are new. A source forgets its oldest events and adds new ones,
// so an import compares bucket by bucket: if a bucket has more events than its mark, the newest are
// missing. The number of a window in a string has no times: the events of the mark in that window
// are subtracted from it.
//
// An Import is for one goroutine.
package imports

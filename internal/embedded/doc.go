// Package embedded is a store within the process, for a start without Redis: nothing in it outlives
// the process, and nobody else sees it. It keeps the promises of syncer.Store, so that all that is
// built on them works the same.
//
// Its memory is bounded: when that is used up, the keys are forgotten that have expired, then those
// that have counted least, and of them those that expire soonest. A [Store] may be used from
// several goroutines.
package embedded

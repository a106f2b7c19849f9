package syncer

import (
	"time"

	"twotier.dev/twotier/internal/slab"
)

// OffHeap reports whether the memory of a counter's keys and buckets is outside of the Go heap, and
// so not seen by its collector.
func OffHeap() bool { return slab.OffHeap }

// Stats is a snapshot of a counter's state and of what it has done since it was opened. Fields
// whose names end in Total only grow.
type Stats struct {
	// Keys is the number of keys in memory, PendingBuckets the number of buckets that the store has
	// not acknowledged.
	Keys, PendingBuckets int64
	// UnflushedAge is the age of the oldest count that the store has not acknowledged, rounded up
	// by no more than it took to cut the round before; 0 if the store has all.
	UnflushedAge time.Duration
	// MaxLag is Options.MaxLag. WaitingForRoom is how many operations wait at this moment so that
	// UnflushedAge stays below it, BehindTotal how many were refused with ErrBehind.
	MaxLag                      time.Duration
	WaitingForRoom, BehindTotal int64
	// MemoryBytes is the memory held for keys and buckets; MaxMemory its bound.
	MemoryBytes, MaxMemory int64
	// DegradedPartitions is the number of partitions that the store did not answer, or refused,
	// when it was last asked.
	DegradedPartitions int64
	// Batches that the store acknowledged, that had to be sent again because their outcome was
	// unknown, and that were refused and kept.
	BatchesOKTotal, BatchesUnknownTotal, BatchesRefusedTotal int64
	// FlushedBucketsTotal is the number of bucket deltas acknowledged.
	FlushedBucketsTotal int64
	// LoadsTotal is the number of keys read from the store.
	LoadsTotal int64
	// EvictedTotal is the number of clean idle keys that were dropped from memory.
	EvictedTotal int64
	// LossesTotal is the number of times a partition's data was found missing from the store and
	// was published again.
	LossesTotal int64
	// DroppedExpiredTotal counts unflushed buckets that left every window before the store took
	// them.
	DroppedExpiredTotal int64
	// BadKeysTotal counts refusals by the store of a single key (a foreign type under its name, an
	// overflow).
	BadKeysTotal int64
}

package syncer

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"twotier.dev/twotier/internal/slab"
	"twotier.dev/twotier/syncer/store"
)

// OffHeap reports whether the memory of keys and buckets lies outside of the Go heap, where the
// garbage collector does not see it.
func OffHeap() bool { return slab.OffHeap }

// Stats is a snapshot of a counter's state and of its activity since it was opened. Fields whose
// names end in Total only grow.
type Stats struct {
	// Keys is the number of keys in memory, PendingBuckets the number of buckets with counts that
	// the store has not acknowledged.
	Keys, PendingBuckets int64
	// UnflushedAge is the age of the oldest count that the store has not acknowledged, rounded up
	// by at most the time it took to cut the previous round; 0 if the store has everything.
	UnflushedAge time.Duration
	// MaxLag is Options.MaxLag. WaitingForRoom is the number of operations that are waiting so that
	// UnflushedAge stays below it, BehindTotal the number that were refused with ErrBehind.
	MaxLag                      time.Duration
	WaitingForRoom, BehindTotal int64
	// MemoryBytes is the memory used for keys and buckets, MaxMemory its bound.
	MemoryBytes, MaxMemory int64
	// DegradedPartitions is the number of partitions for which the store's last exchange failed or
	// was refused.
	DegradedPartitions int64
	// Batches that the store acknowledged, that were sent again because their outcome was unknown,
	// and that were refused and kept.
	BatchesOKTotal, BatchesUnknownTotal, BatchesRefusedTotal int64
	// FlushedBucketsTotal is the number of bucket deltas acknowledged.
	FlushedBucketsTotal int64
	// LoadsTotal is the number of keys read from the store.
	LoadsTotal int64
	// UnreadTotal is the number of reads of a key not in memory that were saved because the store
	// does not list the key. ListedKeys is the number of hashes, held in memory, of keys that the
	// store may have and memory does not.
	UnreadTotal, ListedKeys int64
	// EvictedTotal is the number of clean idle keys evicted from memory.
	EvictedTotal int64
	// LossesTotal is the number of times that a partition's data was found missing from the store
	// and was restored.
	LossesTotal int64
	// DroppedExpiredTotal is the number of events that left every window before the store accepted
	// them.
	DroppedExpiredTotal int64
	// BadKeysTotal is the number of times that the store refused a single key (a value of another
	// type under its name, an overflow).
	BadKeysTotal int64
}

// totals counts a counter's activity since it was opened, see [Stats].
type totals struct {
	batchesOK, batchesUnknown, batchesRefused atomic.Int64
	flushedBuckets, loads, losses, badKeys    atomic.Int64
}

// reporter logs an event once, even if several batchers or partitions of a counter notice it.
type reporter struct {
	log          *slog.Logger
	flushersDown atomic.Int64
	lossAt       atomic.Int64 // when a loss was last logged, in unix nanoseconds
}

// logStoreDown logs when the first flusher loses the store, and when the last one reaches it again.
func (r *reporter) logStoreDown(down bool, err error) {
	switch {
	case down && r.flushersDown.Add(1) == 1:
		text := "the store can't be reached: answering from memory"
		if errors.Is(err, store.ErrLate) {
			text = "the store answers, but not in time: counts wait in memory"
		}
		r.log.Warn(text, "error", err)
	case !down && r.flushersDown.Add(-1) == 0:
		r.log.Info("the store can be reached again")
	}
}

// isLogDue reports whether to log an event again, which was last logged at a time in unix
// nanoseconds.
func isLogDue(at *atomic.Int64, pause time.Duration) bool {
	now, last := time.Now().UnixNano(), at.Load()
	return now-last > int64(pause) && at.CompareAndSwap(last, now)
}

// lossPause is how long further losses go unlogged after one was logged.
const lossPause = 10 * time.Second

func (r *reporter) logLoss(first int) {
	if isLogDue(&r.lossAt, lossPause) {
		r.log.Warn("the store has lost counts that it had acknowledged: publishing what "+
			"memory knows", "first_partition", first)
	}
}

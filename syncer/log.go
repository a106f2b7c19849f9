package syncer

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"twotier.dev/twotier/syncer/store"
)

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

// lossPause is how long further losses go unlogged after one was logged.
const lossPause = 10 * time.Second

func (r *reporter) logLoss(first int) {
	now, last := time.Now().UnixNano(), r.lossAt.Load()
	if now-last > int64(lossPause) && r.lossAt.CompareAndSwap(last, now) {
		r.log.Warn("the store has lost counts that it had acknowledged: publishing what "+
			"memory knows", "first_partition", first)
	}
}

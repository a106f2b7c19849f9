package syncer

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// reporter logs what the batchers and partitions of a counter find out one after the other: once.
type reporter struct {
	log          *slog.Logger
	flushersDown atomic.Int64
	lossAt       atomic.Int64 // when one was logged last, in unix nanoseconds
}

// storeDown logs when the first flusher loses the store, and when the last one has it back.
func (r *reporter) storeDown(down bool, err error) {
	switch {
	case down && r.flushersDown.Add(1) == 1:
		r.log.Warn("the store can't be reached: answering from memory", "error", err)
	case !down && r.flushersDown.Add(-1) == 0:
		r.log.Info("the store can be reached again")
	}
}

// lossPause is how long one loss is the news.
const lossPause = 10 * time.Second

func (r *reporter) loss(partition int) {
	now, last := time.Now().UnixNano(), r.lossAt.Load()
	if now-last > int64(lossPause) && r.lossAt.CompareAndSwap(last, now) {
		r.log.Warn("the store has lost counts that it had acknowledged: publishing what "+
			"memory knows", "first_partition", partition)
	}
}

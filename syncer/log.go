package syncer

import "time"

// logStore logs when the first flusher loses the store, and when the last one has it back.
func (c *Counter) logStore(down bool, err error) {
	switch {
	case down && c.flushersDown.Add(1) == 1:
		c.opt.Logger.Warn("the store can't be reached: answering from memory", "error", err)
	case !down && c.flushersDown.Add(-1) == 0:
		c.opt.Logger.Info("the store can be reached again")
	}
}

// lossPause is how long one loss is the news: the partitions find out one after the other.
const lossPause = 10 * time.Second

func (c *Counter) logLoss(partition int) {
	now, last := time.Now().UnixNano(), c.lossLogged.Load()
	if now-last > int64(lossPause) && c.lossLogged.CompareAndSwap(last, now) {
		c.opt.Logger.Warn("the store has lost counts that it had acknowledged: publishing what "+
			"memory knows", "first_partition", partition)
	}
}

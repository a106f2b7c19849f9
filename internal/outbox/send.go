package outbox

import (
	"math/rand/v2"
	"time"

	"twotier.dev/twotier/internal/retry"
)

const (
	// FirstPause is the longest pause after the first attempt. It doubles with each attempt.
	FirstPause = time.Second
	// quiet is the least time between two log messages about failures: a disk that is almost full
	// fails every other write.
	quiet = time.Minute
)

// runSend sends until Close, and then the rest of the queue.
func (q *Queue[T]) runSend() {
	defer close(q.done)
	var batch []T
	for open := true; open; {
		select {
		case <-q.wake:
			q.awaitBatch()
		case <-q.closing.Done():
			open = false
		}
		for batch = q.take(batch); len(batch) > 0; batch = q.take(batch) {
			q.sendBatch(batch)
			clear(batch)
		}
	}
}

// awaitBatch waits for a complete batch, but no longer than the options say or once Close was
// called.
func (q *Queue[T]) awaitBatch() {
	if q.opt.Gather == 0 {
		return
	}
	timer := time.NewTimer(q.opt.Gather)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-q.full:
	case <-q.closing.Done():
	}
}

// sendBatch sends a batch, again after a failure that may pass, or drops it.
func (q *Queue[T]) sendBatch(batch []T) {
	for attempt := range max(1, q.opt.Attempts) {
		if attempt > 0 {
			longest := FirstPause << (attempt - 1)
			retry.Pause(q.closing, longest/2+rand.N(longest/2))
		}
		n, err := q.opt.Send(q.sending, batch)
		q.sent.Add(int64(q.opt.Count(batch[:n])))
		if batch = batch[n:]; err == nil {
			q.recordSuccess()
			return
		}
		final := q.opt.IsFinal != nil && q.opt.IsFinal(err)
		if final || attempt+1 >= q.opt.Attempts || q.closing.Err() != nil {
			q.drop(batch, err)
			return
		}
	}
}

// recordSuccess logs that sending works again, if it had failed.
func (q *Queue[T]) recordSuccess() {
	if q.failing {
		q.failing = false
		q.opt.Logger.Info(q.opt.Works, append(q.opt.About, "dropped", q.Dropped())...)
	}
}

// drop drops a batch, and logs the reason unless it has been logged.
func (q *Queue[T]) drop(batch []T, err error) {
	q.dropped.Add(int64(q.opt.Count(batch)))
	if !q.failing && (q.logged.IsZero() || time.Since(q.logged) >= quiet) {
		q.failing, q.logged = true, time.Now()
		q.opt.Logger.Warn(q.opt.Failed, append(q.opt.About, "error", err)...)
	}
}

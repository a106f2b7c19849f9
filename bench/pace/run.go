package pace

import (
	"context"
	"sync"
	"time"
)

// Options describe a run.
type Options struct {
	// Rate is that of an open loop in calls per second, of all workers together. 0 is a closed loop, unless Scheduled.
	Rate float64
	// Scheduled is an open loop whose calls say themselves when they are due.
	Scheduled bool
	// Warmup is not measured, Duration is.
	Warmup, Duration time.Duration
}

// Worker makes calls, one after the other.
type Worker struct {
	// Next prepares a call, which is not timed, and says when it is due after the start, which only matters in a scheduled
	// loop. It returns false when there are no more.
	Next func() (due time.Duration, ok bool)
	// Do makes the call. An error ends this worker's part.
	Do func() error
}

// worker is a Worker that runs.
type worker struct {
	Worker
	options         *Options
	index, of       int
	start, measured time.Time // measured is when the warm-up is over
	end             time.Time
	interval        time.Duration // between the calls of all workers together
	tally           tally
}

// Run has all workers make calls until it is over, they have no more, or ctx is done.
func Run(ctx context.Context, o Options, workers []Worker) Result {
	start := time.Now()
	var wg sync.WaitGroup
	all := make([]worker, len(workers))
	for i := range all {
		w := &all[i]
		*w = worker{Worker: workers[i], options: &o, index: i, of: len(workers), start: start, tally: newTally()}
		w.measured = start.Add(o.Warmup)
		w.end = w.measured.Add(o.Duration)
		if o.Rate > 0 {
			w.interval = time.Duration(float64(time.Second) / o.Rate)
		}
		wg.Go(func() { w.runWorker(ctx) })
	}
	wg.Wait()
	total := newTally()
	for i := range all {
		total.add(all[i].tally)
	}
	return total.result(max(time.Since(start)-o.Warmup, time.Microsecond))
}

// runWorker makes the calls of one worker.
func (w *worker) runWorker(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		due, ok := w.Next()
		if !ok {
			return
		}
		if !w.options.Scheduled {
			due = w.interval * time.Duration(n*w.of+w.index)
		}
		from, ok := w.await(ctx, w.start.Add(due))
		if !ok {
			return
		}
		err := w.Do()
		now := time.Now()
		switch {
		case err != nil:
			w.tally.failure(err)
			return
		case !from.Before(w.measured):
			w.tally.success(now.Sub(from))
		}
	}
}

// await returns when a call may go, from when its time counts, and false when the run is over. If the worker was free in
// time, time counts from when it woke up: that a timer is late is no fault of what is called.
func (w *worker) await(ctx context.Context, due time.Time) (from time.Time, ok bool) {
	now := time.Now()
	if w.interval == 0 && !w.options.Scheduled {
		return now, now.Before(w.end)
	}
	switch wait := due.Sub(now); {
	case !due.Before(w.end):
		return due, false
	case !now.Before(w.end):
		w.countUnsent(due)
		return due, false
	case wait > 0 && Sleep(ctx, wait) != nil:
		return due, false
	case wait > 0:
		return time.Now(), true
	}
	return due, true
}

// countUnsent counts the calls that were due from a time on to the end.
func (w *worker) countUnsent(due time.Time) {
	w.tally.unsent++
	if !w.options.Scheduled {
		w.tally.unsent += int64(w.end.Sub(due) / (w.interval * time.Duration(w.of)))
		return
	}
	for {
		next, ok := w.Next()
		if !ok || !w.start.Add(next).Before(w.end) {
			return
		}
		w.tally.unsent++
	}
}

func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

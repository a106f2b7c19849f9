package load

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Loop defines when calls are made. The calls of an open loop are due at fixed times, and any free
// worker makes the next one.
type Loop struct {
	// Rate is the number of calls per second of an open loop, for all workers together. 0 means a
	// closed loop, in which each worker makes its next call as soon as the last one has returned.
	Rate float64
	// Scheduled makes an open loop in which Worker.Next returns when each call is due. Rate is
	// ignored.
	Scheduled bool
	// Warmup is how long calls are made before measuring starts, and Duration how long they are
	// measured after that. A closed loop without a warm-up measures at least one call of each
	// worker, however late its goroutine gets a processor.
	Warmup, Duration time.Duration
}

func (l *Loop) closed() bool { return !l.Scheduled && l.Rate == 0 }

// Worker makes calls, one after the other.
type Worker struct {
	// Next prepares a call and returns false if there are no more. It is not timed. If the loop is
	// scheduled, due is when the call is due, counted from the start.
	Next func() (due time.Duration, ok bool)
	// Do makes the call. After a failure the worker pauses: otherwise it would call a server that
	// refuses connections thousands of times a second.
	Do func() error
}

// restAfterFailure is how long a worker pauses after a failed call.
const restAfterFailure = 10 * time.Millisecond

// running is a loop in progress.
type running struct {
	Loop
	start, measured, end time.Time // measured is when the warm-up is over
	tickets              atomic.Int64
	sent, unsent         atomic.Int64
}

// Run lets the workers make calls until the loop is over, they have no more calls, or ctx is done.
// It waits for all goroutines that it starts, and so for calls in flight.
func (l Loop) Run(ctx context.Context, workers []Worker) Timing {
	r := &running{Loop: l, start: time.Now()}
	r.measured = r.start.Add(l.Warmup)
	r.end = r.measured.Add(l.Duration)
	running, cancel := context.WithDeadline(ctx, r.end)
	defer cancel()
	var group sync.WaitGroup
	tallies := make([]*tally, len(workers))
	for i, w := range workers {
		tallies[i] = newTally()
		group.Go(func() { r.runWorker(running, w, tallies[i]) })
	}
	group.Wait()
	took := time.Since(r.start)
	total := newTally()
	for _, t := range tallies {
		total.add(t)
	}
	return total.timing(max(took-l.Warmup, time.Microsecond), r.countUnsent(took))
}

// countUnsent returns the number of calls that were due during the run but were not made.
func (r *running) countUnsent(took time.Duration) int64 {
	if r.Scheduled || r.Rate == 0 {
		return r.unsent.Load()
	}
	took = min(took, r.Warmup+r.Duration)
	return max(int64(took.Seconds()*r.Rate)-r.sent.Load(), 0)
}

// runWorker makes the calls of one worker.
func (r *running) runWorker(ctx context.Context, w Worker, to *tally) {
	for first := true; ; first = false {
		due, ok := w.Next()
		if !ok {
			return
		}
		from, sent, ok := r.await(ctx, due)
		if !ok && !(first && r.closed() && !errors.Is(ctx.Err(), context.Canceled)) {
			r.leave(w, due)
			return
		}
		r.sent.Add(1)
		err := w.Do()
		done := time.Now()
		switch {
		case err != nil:
			to.failure(err)
			_ = Sleep(ctx, restAfterFailure)
		case !from.Before(r.measured):
			to.success(done.Sub(from), done.Sub(sent))
		}
	}
}

// await waits until a call is due. It returns the start of the call's latency and the time of the
// call, or false if the run is over. If the worker was free in time, the latency begins when the
// worker wakes up: if the timer is a millisecond late, that is not the server's latency.
func (r *running) await(ctx context.Context, due time.Duration) (from, sent time.Time, ok bool) {
	now := time.Now()
	if r.closed() {
		return now, now, now.Before(r.end) && ctx.Err() == nil
	}
	if !r.Scheduled {
		due = time.Duration(float64(r.tickets.Add(1)-1) / r.Rate * float64(time.Second))
	}
	at := r.start.Add(due)
	switch wait := at.Sub(now); {
	case !at.Before(r.end) || ctx.Err() != nil:
		return at, now, false
	case wait <= 0:
		return at, now, true
	case Sleep(ctx, wait) != nil:
		return at, now, false
	}
	now = time.Now()
	return now, now, true
}

// leave counts a scheduled loop's unsent calls: the last prepared call and all later ones of its
// worker.
func (r *running) leave(w Worker, due time.Duration) {
	for ok := r.Scheduled; ok && due < r.Warmup+r.Duration; due, ok = w.Next() {
		r.unsent.Add(1)
	}
}

// Sleep waits for d, or returns the error of ctx if that is done first.
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

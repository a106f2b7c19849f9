package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"twotier/bench/trace"
)

// worker is one connection and what it sends.
type worker struct {
	options  *Options
	index    int
	conn     *Conn
	request  *Request
	keys     trace.Keys
	measure  time.Time // when the warm-up is over
	start    time.Time
	end      time.Time
	tally    tally
	interval time.Duration // of an open loop, between calls of all connections together
}

// Run sends load until it is over or ctx is done. The error is about the options and the first contact with the server;
// calls that fail later are in the result, and end their connection's part.
func Run(ctx context.Context, o Options) (Result, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Result{}, fmt.Errorf("load: %w", err)
	}
	workers, err := connect(&o)
	defer closeAll(workers)
	if err != nil {
		return Result{}, fmt.Errorf("load: %w", err)
	}
	start := time.Now()
	var wg sync.WaitGroup
	for _, w := range workers {
		w.start, w.measure = start, start.Add(o.Warmup)
		w.end = w.measure.Add(o.Duration)
		wg.Go(func() { w.runWorker(ctx) })
	}
	wg.Wait()
	took := time.Since(start) - o.Warmup
	total := newTally()
	for _, w := range workers {
		total.add(w.tally)
	}
	return total.result(o, took), ctx.Err()
}

// connect opens all connections.
func connect(o *Options) (workers []*worker, err error) {
	for i := range o.Conns {
		// Distinct keys of different seeds don't meet.
		keys, err := trace.NewKeys(o.Keys, o.Seed*1000+uint64(i), o.Space)
		if err != nil {
			return workers, err
		}
		conn, err := Dial(o.Addr)
		if err != nil {
			return workers, err
		}
		w := &worker{options: o, index: i, conn: conn, request: NewRequest(o.Addr, o.Op, o.PerCall, false), keys: keys}
		w.tally = newTally()
		if o.Rate > 0 {
			w.interval = time.Duration(float64(time.Second) * float64(o.PerCall) / o.Rate)
		}
		workers = append(workers, w)
	}
	return workers, nil
}

func closeAll(workers []*worker) {
	for _, w := range workers {
		_ = w.conn.Close()
	}
}

// runWorker keeps one connection busy until the end.
func (w *worker) runWorker(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		for i := range w.request.Len() {
			w.request.SetKey(i, w.keys())
		}
		from, ok := w.await(ctx, n)
		if !ok {
			return
		}
		err := w.conn.Do(w.request)
		now := time.Now()
		switch {
		case err != nil:
			w.tally.failure(err)
			return
		case !from.Before(w.measure):
			w.tally.success(now.Sub(from))
		}
	}
}

// await returns when call n of this connection may go, from when its time counts, and false when the run is over. If the
// connection was free in time, time counts from when it woke up: that a timer is late is no fault of the server's.
func (w *worker) await(ctx context.Context, n int) (from time.Time, ok bool) {
	now := time.Now()
	if w.interval == 0 {
		return now, now.Before(w.end)
	}
	due := w.start.Add(w.interval * time.Duration(n*w.options.Conns+w.index))
	switch wait := due.Sub(now); {
	case !due.Before(w.end):
		return due, false
	case !now.Before(w.end):
		w.tally.unsent += int64(w.end.Sub(due)/(w.interval*time.Duration(w.options.Conns))) + 1
		return due, false
	case wait > 0 && sleep(ctx, wait) != nil:
		return due, false
	case wait > 0:
		return time.Now(), true
	}
	return due, true
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Err is what stands against believing r: nil if no call failed.
func (r Result) Err() error {
	if r.Errors == 0 {
		return nil
	}
	return fmt.Errorf("load: %d calls failed: %w", r.Errors, errors.New(r.FirstError))
}

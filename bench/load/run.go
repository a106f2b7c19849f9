package load

import (
	"context"
	"fmt"
	"time"

	"twotier/bench/pace"
	"twotier/bench/trace"
)

// worker is one connection and what it sends.
type worker struct {
	conn    *Conn
	request *Request
	keys    trace.Keys
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
	var calls []pace.Worker
	for _, w := range workers {
		calls = append(calls, pace.Worker{Next: w.next, Do: func() error { return w.conn.Do(w.request) }})
	}
	p := pace.Options{Rate: o.Rate / float64(o.PerCall), Warmup: o.Warmup, Duration: o.Duration}
	return newResult(o, pace.Run(ctx, p, calls)), ctx.Err()
}

// next names the keys of the next call.
func (w *worker) next() (time.Duration, bool) {
	for i := range w.request.Len() {
		w.request.SetKey(i, w.keys())
	}
	return 0, true
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
		workers = append(workers, &worker{conn, NewRequest(o.Addr, o.Op, o.PerCall, false), keys})
	}
	return workers, nil
}

func closeAll(workers []*worker) {
	for _, w := range workers {
		_ = w.conn.Close()
	}
}

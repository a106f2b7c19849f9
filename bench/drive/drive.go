package drive

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"twotier.dev/twotier/bench/limiter"
	"twotier.dev/twotier/bench/load"
)

// Options configures a run. The zero value of a field means the default that its comment names.
type Options struct {
	// Workload is one of Workloads, or uniform. It has no default.
	Workload string `json:"workload"`
	// Keys is the number of keys to draw from, or NewKeys if hardly any shall be drawn twice.
	// Default: a million; ten million for messages.
	Keys uint64 `json:"keys"`
	// Seed seeds the draws. Runs with different seeds have different distinct keys. Default: 1.
	Seed uint64 `json:"seed"`
	// Rules is how many of [Rules] a decision has, unless the workload has its own. Default: 2.
	Rules int `json:"rules,omitempty"`
	// Adds counts instead of deciding: there are no rules, and events happen now. It requires
	// twotier's servers and a workload of one key.
	Adds bool `json:"adds,omitempty"`
	// Ample raises the limits of messages so far that they always hold.
	Ample bool `json:"ample,omitempty"`
	// Batch is the number of decisions in one call. Default 1.
	Batch int `json:"batch"`
	// Workers is the number of calls in flight. Default: 64.
	Workers int `json:"workers"`
	// Rate is the rate of an open loop in decisions per second; 0 means a closed loop. The rate of
	// the diurnal workload swings around this one with the time of day.
	Rate float64 `json:"rate"`
	// MaxCalls bounds the decisions of a run; 0 is no bound.
	MaxCalls int `json:"max_calls,omitempty"`
	// Warmup is not measured, Duration is. Default 0 and 3 s.
	Warmup   time.Duration `json:"warmup_ns"`
	Duration time.Duration `json:"duration_ns"`
	// Day is the end of the day of the diurnal workload. Default: ten minutes ago.
	Day time.Time `json:"-"`
}

// NewKeys is a number of keys so large that hardly any key is drawn twice.
const NewKeys = 1 << 62

// Result is the measurement of a run. Its calls have Options.Batch decisions each.
type Result struct {
	Options Options `json:"options"`
	load.Timing
	// Decisions is the number of decisions, and Admitted the number of admissions, both including
	// the warm-up.
	Decisions int64 `json:"decisions"`
	Admitted  int64 `json:"admitted"`
	// PerSecond is the rate of decisions, without the warm-up.
	PerSecond float64 `json:"decisions_per_second"`
}

func (o *Options) fill() error {
	if o.Workload == "messages" {
		o.Keys = cmp.Or(o.Keys, 10_000_000)
	}
	o.Keys, o.Seed, o.Rules = cmp.Or(o.Keys, 1_000_000), cmp.Or(o.Seed, 1), cmp.Or(o.Rules, 2)
	o.Batch, o.Workers = cmp.Or(o.Batch, 1), cmp.Or(o.Workers, 64)
	o.Duration = cmp.Or(o.Duration, 3*time.Second)
	o.Day = cmp.Or(o.Day, time.Now().Add(-10*time.Minute))
	if o.Rules < 0 || o.Rules > 4 || o.Batch < 1 || o.Workers < 1 || o.Rate < 0 || o.MaxCalls < 0 ||
		o.Duration < 0 || o.Warmup < 0 {
		return fmt.Errorf("drive: out of range: %+v", *o)
	}
	return nil
}

// worker makes one call at a time.
type worker struct {
	limiter limiter.Limiter
	source  source
	calls   []limiter.Call // memory for Options.Batch
	n       int            // number of calls to decide next
	total   *totals
}

type totals struct{ decisions, admitted atomic.Int64 }

// Drive is a run that is ready to start: if it replays a trace, the trace has been drawn.
type Drive struct {
	options Options
	workers []*worker
	total   totals
}

// New prepares a run.
func New(l limiter.Limiter, o Options) (*Drive, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	d := &Drive{options: o}
	for w := range o.Workers {
		s, err := o.source(w)
		if err != nil {
			return nil, err
		}
		d.workers = append(d.workers, &worker{limiter: l, source: s,
			calls: make([]limiter.Call, o.Batch), total: &d.total})
	}
	return d, nil
}

// Run runs, once, until the duration is over, the trace is, or ctx is done. Failed calls are in the
// result.
func (d *Drive) Run(ctx context.Context) (Result, error) {
	o := d.options
	var workers []load.Worker
	for _, w := range d.workers {
		workers = append(workers, load.Worker{Next: w.next, Do: func() error { return w.do(ctx) }})
	}
	loop := load.Loop{Rate: o.Rate / float64(o.Batch), Scheduled: o.scheduled(), Warmup: o.Warmup,
		Duration: o.Duration}
	r := Result{Options: o, Timing: loop.Run(ctx, workers)}
	r.Decisions, r.Admitted = d.total.decisions.Load(), d.total.admitted.Load()
	r.PerSecond = r.CallsPerSecond * float64(o.Batch)
	return r, ctx.Err()
}

// scheduled reports whether decisions are due at their times in the trace.
func (o *Options) scheduled() bool { return o.Workload == "diurnal" && o.Rate > 0 }

// next draws the decisions of a call. The last call of a trace may have fewer.
func (w *worker) next() (due time.Duration, ok bool) {
	now := time.Now().UnixMilli()
	for w.n = 0; w.n < len(w.calls); w.n++ {
		at, ok := w.source(&w.calls[w.n], now)
		if !ok {
			break
		}
		due = at
	}
	return due, w.n > 0
}

func (w *worker) do(ctx context.Context) error {
	admitted, err := w.limiter.Decide(ctx, w.calls[:w.n])
	if err != nil {
		return err
	}
	w.total.decisions.Add(int64(w.n))
	w.total.admitted.Add(int64(admitted))
	return nil
}

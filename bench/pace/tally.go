package pace

import (
	"errors"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latency is the distribution of the time that calls took, in microseconds.
type Latency struct {
	Mean float64 `json:"mean"`
	P50  int64   `json:"p50"`
	P90  int64   `json:"p90"`
	P99  int64   `json:"p99"`
	P999 int64   `json:"p999"`
	Max  int64   `json:"max"`
}

// Result is what a run measured.
type Result struct {
	Seconds float64 `json:"seconds"`
	// Calls are those that ended well.
	Calls          int64   `json:"calls"`
	CallsPerSecond float64 `json:"calls_per_second"`
	// Errors are the calls that failed, FirstError why the first did.
	Errors     int64  `json:"errors"`
	FirstError string `json:"first_error,omitempty"`
	// Unsent are the calls of an open loop that were due and not made before the end.
	Unsent  int64   `json:"unsent"`
	Latency Latency `json:"latency_us"`
}

// Err is what stands against believing r: nil if no call failed.
func (r Result) Err() error {
	if r.Errors == 0 {
		return nil
	}
	return fmt.Errorf("%d calls failed: %w", r.Errors, errors.New(r.FirstError))
}

// tally is what one worker measured.
type tally struct {
	latency  *hdrhistogram.Histogram
	errors   int64
	firstErr error
	unsent   int64
}

// newTally records from a microsecond to a minute with three digits.
func newTally() tally {
	return tally{latency: hdrhistogram.New(1, time.Minute.Microseconds(), 3)}
}

func (t *tally) success(took time.Duration) {
	// The only error is a value outside of the histogram's range.
	_ = t.latency.RecordValue(min(max(took.Microseconds(), 1), time.Minute.Microseconds()))
}

func (t *tally) failure(err error) {
	t.errors++
	if t.firstErr == nil {
		t.firstErr = err
	}
}

func (t *tally) add(o tally) {
	t.latency.Merge(o.latency)
	t.errors += o.errors
	t.unsent += o.unsent
	if t.firstErr == nil {
		t.firstErr = o.firstErr
	}
}

func (t *tally) result(took time.Duration) Result {
	h := t.latency
	r := Result{
		Seconds: took.Seconds(), Calls: h.TotalCount(), Errors: t.errors, Unsent: t.unsent,
		Latency: Latency{
			Mean: h.Mean(), P50: h.ValueAtQuantile(50), P90: h.ValueAtQuantile(90), P99: h.ValueAtQuantile(99),
			P999: h.ValueAtQuantile(99.9), Max: h.Max(),
		},
	}
	r.CallsPerSecond = float64(r.Calls) / took.Seconds()
	if t.firstErr != nil {
		r.FirstError = t.firstErr.Error()
	}
	return r
}

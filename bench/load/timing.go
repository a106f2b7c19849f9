package load

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Timing holds the measurements of a loop.
type Timing struct {
	Seconds float64 `json:"seconds"`
	// Calls is the number of successful calls.
	Calls          int64   `json:"calls"`
	CallsPerSecond float64 `json:"calls_per_second"`
	// Errors is the number of failed calls, including the warm-up. FirstError is the error of one
	// of the first failures.
	Errors     int64  `json:"errors"`
	FirstError string `json:"first_error,omitempty"`
	// Unsent is the number of calls of an open loop that were due while no worker was free in time.
	// If it is not 0, the server did not keep up, and the latencies are lower bounds.
	Unsent int64 `json:"unsent"`
	// Latency is measured from the time a call was due (open loop) or made (closed loop), Service
	// from the time it was made.
	Latency Latency `json:"latency_us"`
	Service Latency `json:"service_us"`
}

// Err returns an error if any call failed, because t can't be trusted then.
func (t Timing) Err() error {
	if t.Errors == 0 {
		return nil
	}
	return fmt.Errorf("%d calls failed: %w", t.Errors, errors.New(t.FirstError))
}

// Latency is a distribution in microseconds.
type Latency struct {
	Mean float64 `json:"mean"`
	P50  int64   `json:"p50"`
	P90  int64   `json:"p90"`
	P99  int64   `json:"p99"`
	P999 int64   `json:"p999"`
	Max  int64   `json:"max"`
}

// longest is the largest latency that is recorded exactly, in microseconds: ten minutes.
const longest = 600_000_000

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, longest, 3) }

func record(h *hdrhistogram.Histogram, d time.Duration) {
	// RecordValue can't fail for values within the bounds.
	_ = h.RecordValue(min(max(d.Microseconds(), 1), longest))
}

func latencyOf(h *hdrhistogram.Histogram) Latency {
	return Latency{
		Mean: math.Round(h.Mean()*10) / 10,
		P50:  h.ValueAtQuantile(50), P90: h.ValueAtQuantile(90),
		P99: h.ValueAtQuantile(99), P999: h.ValueAtQuantile(99.9), Max: h.Max(),
	}
}

// tally accumulates the latencies and errors of one worker.
type tally struct {
	latency, service *hdrhistogram.Histogram
	errors           int64
	first            error
}

func newTally() *tally { return &tally{latency: newHistogram(), service: newHistogram()} }

func (t *tally) add(more *tally) {
	t.latency.Merge(more.latency)
	t.service.Merge(more.service)
	t.errors += more.errors
	if t.first == nil {
		t.first = more.first
	}
}

func (t *tally) timing(took time.Duration, unsent int64) Timing {
	r := Timing{
		Seconds: took.Seconds(), Calls: t.latency.TotalCount(), Errors: t.errors, Unsent: unsent,
		Latency: latencyOf(t.latency), Service: latencyOf(t.service),
	}
	r.CallsPerSecond = float64(r.Calls) / r.Seconds
	if t.first != nil {
		r.FirstError = t.first.Error()
	}
	return r
}

func (t *tally) success(latency, service time.Duration) {
	record(t.latency, latency)
	record(t.service, service)
}

func (t *tally) failure(err error) {
	t.errors++
	if t.first == nil {
		t.first = err
	}
}

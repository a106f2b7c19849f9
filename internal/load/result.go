package load

import (
	"maps"
	"math"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is what a run measured.
type Result struct {
	Op          string  `json:"op"`
	Dist        string  `json:"dist"`
	Keys        int     `json:"keys"`
	Connections int     `json:"connections"`
	Batch       int     `json:"batch"`
	Rate        float64 `json:"rate"`
	// Seconds is how long it took, waiting for the last answers included.
	Seconds float64 `json:"seconds"`
	// Requests were answered with success and had Operations in them, Allowed of which an acquire let through.
	Requests   int64 `json:"requests"`
	Operations int64 `json:"operations"`
	Allowed    int64 `json:"allowed"`
	Refused    int64 `json:"refused"`
	// OpsPerSecond counts what succeeded.
	OpsPerSecond float64 `json:"ops_per_second"`
	// Errors counts failed requests by what failed.
	Errors map[string]int64 `json:"errors"`
	// Unsent is the number of requests of an open loop that were due but for which no connection was free in time. If
	// there are such, the server did not keep up and the latencies are lower bounds.
	Unsent int64 `json:"unsent"`
	// Latency is from when a request was due (open loop) or sent (closed loop), Service always from when it was sent.
	Latency Latency `json:"latency_us"`
	Service Latency `json:"service_us"`
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

// Progress is what happened since the one before.
type Progress struct {
	Elapsed time.Duration
	// OpsPerSecond succeeded and Errors failed in this interval.
	OpsPerSecond float64
	Errors       int64
	Latency      Latency
}

// longest is the largest latency that is told apart, in microseconds: ten minutes.
const longest = 600_000_000

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, longest, 3) }

func record(h *hdrhistogram.Histogram, d time.Duration) {
	// It can't fail for values within the bounds.
	_ = h.RecordValue(min(max(d.Microseconds(), 1), longest))
}

func latencyOf(h *hdrhistogram.Histogram) Latency {
	return Latency{
		Mean: math.Round(h.Mean()*10) / 10,
		P50:  h.ValueAtQuantile(50), P90: h.ValueAtQuantile(90), P99: h.ValueAtQuantile(99), P999: h.ValueAtQuantile(99.9),
		Max: h.Max(),
	}
}

// recorder is what one worker has measured since it was last drained.
type recorder struct {
	mu sync.Mutex
	tally
}

// tally is sums and distributions.
type tally struct {
	requests, operations, allowed, refused int64
	errors                                 map[string]int64
	latency, service                       *hdrhistogram.Histogram
}

func newTally() tally {
	return tally{errors: map[string]int64{}, latency: newHistogram(), service: newHistogram()}
}

// success records the answer of one request.
func (r *recorder) success(latency, service time.Duration, a outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	r.operations += a.operations
	r.allowed += a.allowed
	r.refused += a.refused
	record(r.latency, latency)
	record(r.service, service)
	if a.failed > 0 {
		r.errors["operations of a batch"] += a.failed
	}
}

func (r *recorder) failure(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors[reason]++
}

// drain adds what r holds to t and empties r.
func (r *recorder) drain(t *tally) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.add(&r.tally)
	r.latency.Reset()
	r.service.Reset()
	clear(r.errors)
	r.tally = tally{errors: r.errors, latency: r.latency, service: r.service}
}

func (t *tally) add(more *tally) {
	t.requests += more.requests
	t.operations += more.operations
	t.allowed += more.allowed
	t.refused += more.refused
	for reason, n := range more.errors {
		t.errors[reason] += n
	}
	t.latency.Merge(more.latency)
	t.service.Merge(more.service)
}

func (t *tally) failures() (n int64) {
	for _, k := range t.errors {
		n += k
	}
	return n
}

func (t *tally) result(o *Options, took time.Duration, unsent int64) Result {
	return Result{
		Op: o.Op, Dist: o.Dist, Keys: o.Keys, Connections: o.Connections, Batch: o.perRequest(), Rate: o.Rate,
		Seconds:  math.Round(took.Seconds()*1000) / 1000,
		Requests: t.requests, Operations: t.operations, Allowed: t.allowed, Refused: t.refused,
		OpsPerSecond: math.Round(float64(t.operations) / took.Seconds()),
		Errors:       maps.Clone(t.errors), Unsent: unsent,
		Latency: latencyOf(t.latency), Service: latencyOf(t.service),
	}
}

package load

import (
	"math"
	"time"
)

// Result holds the measurements of [Run].
type Result struct {
	Op          string  `json:"op"`
	Dist        string  `json:"dist"`
	Keys        int     `json:"keys"`
	Connections int     `json:"connections"`
	Batch       int     `json:"batch"`
	Rate        float64 `json:"rate"`
	// Seconds is how long the run took, including the wait for the last answers.
	Seconds float64 `json:"seconds"`
	// Requests is the number of successful requests, and Operations the number of operations in
	// them. Of an acquire's operations, Allowed were allowed and Refused were refused.
	Requests   int64 `json:"requests"`
	Operations int64 `json:"operations"`
	Allowed    int64 `json:"allowed"`
	Refused    int64 `json:"refused"`
	// OpsPerSecond counts successful operations.
	OpsPerSecond float64 `json:"ops_per_second"`
	// Errors counts failed requests, and failed operations of a batch, by reason.
	Errors map[string]int64 `json:"errors"`
	// Unsent is the number of requests of an open loop that were due while no connection was free
	// in time. If it is not 0, the server did not keep up and the latencies are lower bounds.
	Unsent int64 `json:"unsent"`
	// Latency is measured from the time a request was due (open loop) or sent (closed loop),
	// Service always from the time it was sent.
	Latency Latency `json:"latency_us"`
	Service Latency `json:"service_us"`
}

// Progress is the traffic since the last Progress.
type Progress struct {
	Elapsed time.Duration
	// OpsPerSecond counts successful operations in this interval, and Errors the failed ones.
	OpsPerSecond float64
	Errors       int64
	Latency      Latency
}

// result combines the timing with the counts from the answers.
func (r *run) result(t Timing) Result {
	o, a := &r.options, &r.answered
	return Result{
		Op: o.Op, Dist: o.Dist, Keys: o.Keys, Connections: o.Connections, Batch: o.perRequest(),
		Rate:     o.Rate,
		Seconds:  math.Round(t.Seconds*1000) / 1000,
		Requests: t.Calls, Operations: a.operations.Load(), Allowed: a.allowed.Load(),
		Refused:      a.refused.Load(),
		OpsPerSecond: math.Round(float64(a.operations.Load()) / t.Seconds),
		Errors:       r.errors, Unsent: t.Unsent, Latency: t.Latency, Service: t.Service,
	}
}

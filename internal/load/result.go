package load

import (
	"math"
	"time"
)

// Result is what [Run] measured.
type Result struct {
	Op          string  `json:"op"`
	Dist        string  `json:"dist"`
	Keys        int     `json:"keys"`
	Connections int     `json:"connections"`
	Batch       int     `json:"batch"`
	Rate        float64 `json:"rate"`
	// Seconds is how long the run took, including the wait for the last answers.
	Seconds float64 `json:"seconds"`
	// Requests is the number of requests that succeeded, and Operations the number of operations in
	// them. Of those of an acquire, Allowed were allowed and Refused were refused.
	Requests   int64 `json:"requests"`
	Operations int64 `json:"operations"`
	Allowed    int64 `json:"allowed"`
	Refused    int64 `json:"refused"`
	// OpsPerSecond counts operations that succeeded.
	OpsPerSecond float64 `json:"ops_per_second"`
	// Errors counts failed requests, and failed operations of a batch, by reason.
	Errors map[string]int64 `json:"errors"`
	// Unsent is the number of requests of an open loop that were due but for which no connection
	// was free in time. If there are any, the server did not keep up and the latencies are lower
	// bounds.
	Unsent int64 `json:"unsent"`
	// Latency is measured from when a request was due (open loop) or sent (closed loop), Service
	// always from when it was sent.
	Latency Latency `json:"latency_us"`
	Service Latency `json:"service_us"`
}

// Progress is what happened since the last Progress.
type Progress struct {
	Elapsed time.Duration
	// OpsPerSecond counts operations that succeeded in this interval, and Errors what failed.
	OpsPerSecond float64
	Errors       int64
	Latency      Latency
}

// result combines the timing with what the answers reported.
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

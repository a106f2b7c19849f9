package load

import (
	"math"
	"time"
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
	// Requests were answered with success and had Operations in them, Allowed of which an acquire
	// let through.
	Requests   int64 `json:"requests"`
	Operations int64 `json:"operations"`
	Allowed    int64 `json:"allowed"`
	Refused    int64 `json:"refused"`
	// OpsPerSecond counts what succeeded.
	OpsPerSecond float64 `json:"ops_per_second"`
	// Errors counts failed requests by what failed.
	Errors map[string]int64 `json:"errors"`
	// Unsent is the number of requests of an open loop that were due but for which no connection
	// was free in time. If there are such, the server did not keep up and the latencies are lower
	// bounds.
	Unsent int64 `json:"unsent"`
	// Latency is from when a request was due (open loop) or sent (closed loop), Service always from
	// when it was sent.
	Latency Latency `json:"latency_us"`
	Service Latency `json:"service_us"`
}

// Progress is what happened since the one before.
type Progress struct {
	Elapsed time.Duration
	// OpsPerSecond succeeded and Errors failed in this interval.
	OpsPerSecond float64
	Errors       int64
	Latency      Latency
}

// result joins what was timed and what was answered.
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

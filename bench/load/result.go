package load

import "twotier/bench/pace"

// Result is what a run measured.
type Result struct {
	Options Options `json:"options"`
	pace.Result
	// Operations were in the calls that were answered well.
	Operations int64 `json:"operations"`
	// PerSecond is operations over the measured time.
	PerSecond float64 `json:"operations_per_second"`
}

func newResult(o Options, p pace.Result) Result {
	n := int64(o.PerCall)
	return Result{Options: o, Result: p, Operations: p.Calls * n, PerSecond: p.CallsPerSecond * float64(n)}
}

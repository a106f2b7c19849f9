package load

import (
	"fmt"
	"time"
)

// The operations of a run.
const (
	OpAdd = "add"
	// OpAcquire asks for at most 15 in a minute and 50 in an hour.
	OpAcquire = "acquire"
	// OpBatch is a quiet batch of adds, OpBatchAcquire one of acquires.
	OpBatch        = "batch"
	OpBatchAcquire = "batch-acquire"
)

// Options describe a run. Zero values take the defaults that are named.
type Options struct {
	// Addr is the server's host and port. It has no default.
	Addr string `json:"-"`
	// Op is one of the operations above. Default add.
	Op string `json:"op"`
	// Keys is same, uniform, zipf or distinct, as in trace.NewKeys. Default uniform.
	Keys string `json:"keys"`
	// Space is how many keys are drawn from. Default 1,000,000.
	Space uint64 `json:"space"`
	// Seed is where the keys start. Every connection draws its own. Default 1.
	Seed uint64 `json:"seed"`
	// PerCall is the number of operations of one batch. Default 1000; the others have 1.
	PerCall int `json:"ops_per_call"`
	// Conns is the number of connections. Default 16.
	Conns int `json:"connections"`
	// Rate is that of an open loop in operations per second. 0 is a closed loop.
	Rate float64 `json:"rate"`
	// Warmup is not measured, Duration is. Default 0 and 10 s.
	Warmup   time.Duration `json:"warmup_ns"`
	Duration time.Duration `json:"duration_ns"`
}

func (o Options) withDefaults() (Options, error) {
	setDefault(&o.Op, OpAdd)
	setDefault(&o.Keys, "uniform")
	setDefault(&o.Space, 1_000_000)
	setDefault(&o.Seed, 1)
	setDefault(&o.PerCall, 1000)
	setDefault(&o.Conns, 16)
	setDefault(&o.Duration, 10*time.Second)
	switch o.Op {
	case OpAdd, OpAcquire:
		o.PerCall = 1
	case OpBatch, OpBatchAcquire:
	default:
		return o, fmt.Errorf("op %q: not one of add, acquire, batch, batch-acquire", o.Op)
	}
	if o.PerCall < 1 || o.PerCall > 10_000 || o.Conns < 1 || o.Rate < 0 || o.Warmup < 0 || o.Duration < 0 {
		return o, fmt.Errorf("out of range: %+v", o)
	}
	return o, nil
}

func setDefault[T comparable](v *T, preset T) {
	var zero T
	if *v == zero {
		*v = preset
	}
}

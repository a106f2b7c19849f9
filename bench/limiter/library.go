package limiter

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"twotier.dev/twotier/syncer"
)

// Counter is what carries out operations in this process: a syncer.Counter or a redisstore.Direct.
type Counter interface {
	Do(ctx context.Context, op *syncer.Op, res *syncer.Result) error
	DoAll(ctx context.Context, ops []syncer.Op, res []syncer.Result)
}

// Library is twotier within the caller's process.
type Library struct {
	name    string
	counter Counter
	buffers sync.Pool // of *buffer
}

type buffer struct {
	ops []syncer.Op
	res []syncer.Result
}

// NewLibrary returns an adapter for a counter that is open.
func NewLibrary(name string, c Counter) *Library {
	return &Library{
		name: name, counter: c, buffers: sync.Pool{New: func() any { return new(buffer) }},
	}
}

// Name is how tables call it.
func (l *Library) Name() string { return l.name }

// Decide is one Do, or one DoAll for many.
func (l *Library) Decide(ctx context.Context, calls []Call) (admitted int, err error) {
	b := l.buffers.Get().(*buffer)
	defer l.buffers.Put(b)
	b.resize(len(calls))
	for i, c := range calls {
		setOp(&b.ops[i], c.Checks, c.TS)
	}
	if len(calls) == 1 {
		b.res[0].Err = l.counter.Do(ctx, &b.ops[0], &b.res[0])
	} else {
		l.counter.DoAll(ctx, b.ops, b.res)
	}
	for i := range b.res {
		if err := b.res[i].Err; err != nil {
			return admitted, fmt.Errorf("%s: %w", l.name, err)
		}
		if b.res[i].Allowed {
			admitted++
		}
	}
	return admitted, nil
}

// resize makes room for n operations and keeps the memory of those before.
func (b *buffer) resize(n int) {
	b.ops, b.res = slices.Grow(b.ops[:0], n)[:n], slices.Grow(b.res[:0], n)[:n]
}

// setOp makes op an acquire of checks in the memory that it has.
func setOp(op *syncer.Op, checks []Check, ts int64) {
	op.Kind, op.TS = syncer.Acquire, ts
	for len(op.Checks) < len(checks) {
		op.Checks = append(op.Checks, syncer.Check{})
	}
	op.Checks = op.Checks[:len(checks)]
	for i, c := range checks {
		to := &op.Checks[i]
		to.Key, to.N, to.Limits = append(to.Key[:0], c.Key...), c.N, to.Limits[:0]
		for _, l := range c.Limits {
			to.Limits = append(to.Limits, syncer.Limit(l))
		}
	}
}

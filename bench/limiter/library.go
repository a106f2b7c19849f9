package limiter

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"twotier.dev/twotier"
)

// Counter executes operations in this process: a syncer.Counter or a redisstore.Direct.
type Counter interface {
	Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error
	DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result)
}

// Library is twotier as a library in this process.
type Library struct {
	name    string
	counter Counter
	results sync.Pool // of *[]twotier.Result
}

// NewLibrary returns an adapter for an open counter.
func NewLibrary(name string, c Counter) *Library {
	return &Library{name: name, counter: c,
		results: sync.Pool{New: func() any { return new([]twotier.Result) }}}
}

// Name returns the name in tables.
func (l *Library) Name() string { return l.name }

// Decide calls Do once, or DoAll once for many calls.
func (l *Library) Decide(ctx context.Context, calls []Call) (admitted int, err error) {
	pooled := l.results.Get().(*[]twotier.Result)
	defer l.results.Put(pooled)
	*pooled = slices.Grow((*pooled)[:0], len(calls))
	res := (*pooled)[:len(calls)]
	if len(calls) == 1 {
		res[0].Err = l.counter.Do(ctx, &calls[0], &res[0])
	} else {
		l.counter.DoAll(ctx, calls, res)
	}
	for i := range res {
		if err := res[i].Err; err != nil {
			return admitted, fmt.Errorf("%s: %w", l.name, err)
		}
		if res[i].Allowed {
			admitted++
		}
	}
	return admitted, nil
}

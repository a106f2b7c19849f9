package httpapi

import (
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/internal/codec"
	"twotier.dev/twotier/internal/distinct"
)

// startValueOps begins the operations on values of a batch: in order for each key, concurrently for
// different keys. wait waits for them and stores their errors.
func (s *Server) startValueOps(ctx *fasthttp.RequestCtx, x *requestState) (wait func()) {
	calls := make([]distinct.Call, len(x.Values))
	for i := range x.Values {
		v := &x.Values[i]
		calls[i] = distinct.Call{Op: &v.Op, Values: v.Add, Res: &v.Res, Err: errNoValues()}
	}
	var panicked *panicError
	var running sync.WaitGroup
	if s.opts.Distincter != nil {
		running.Go(func() {
			defer func() {
				if what := recover(); what != nil { // nothing else would on this goroutine
					panicked = &panicError{what, debug.Stack()}
				}
			}()
			s.opts.Distincter.DistinctAll(x.context, calls)
		})
	}
	return func() {
		running.Wait()
		for i := range calls {
			if x.Values[i].Err = calls[i].Err; panicked != nil {
				x.Values[i].Err = panicked
			}
		}
		if panicked != nil {
			s.logPanic(ctx, panicked.what, panicked.stack)
		}
	}
}

// panicError is the error of operations on values that panicked.
type panicError struct {
	what  any
	stack []byte
}

func (p *panicError) Error() string { return fmt.Sprint("panic: ", p.what) }

// errNoValues is the error of a server that does not count distinct values.
func errNoValues() error {
	return &twotier.InvalidError{Check: -1, Limit: -1, Field: "op",
		Detail: "there are no distinct values here"}
}

// batchTotals is the answer to a quiet batch.
type batchTotals struct{ added, allowed, refused, failed int64 }

// addValueOp adds an operation on values that was executed.
func (t *batchTotals) addValueOp(v *codec.ValueOp) {
	switch {
	case len(v.Add) == 0:
	case len(v.Op.Limits) == 0:
		t.added++
	case v.Res.Allowed:
		t.allowed++
	default:
		t.refused++
	}
}

// addEventOp adds another operation that was executed.
func (t *batchTotals) addEventOp(kind twotier.Kind, allowed bool) {
	switch {
	case kind == twotier.Add:
		t.added++
	case kind == twotier.Acquire && allowed:
		t.allowed++
	case kind == twotier.Acquire:
		t.refused++
	}
}

// countBatchVerdicts counts the verdicts on the operations of a batch: acquires, and operations on
// values with limits.
func (s *Server) countBatchVerdicts(x *requestState) {
	if !s.verdicts.IsEnabled() {
		return
	}
	run := s.verdicts.Begin(&x.arrival)
	x.CountVerdicts(&run)
	for i := range x.Values {
		if v := &x.Values[i]; v.Err == nil {
			run.CountValues(&v.Values, &v.Res)
		}
	}
	if run.HasDecision() {
		run.End(time.Since(x.arrival.Began))
	}
}

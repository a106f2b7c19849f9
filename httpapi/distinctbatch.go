package httpapi

import (
	"errors"
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
	var all distinct.Call
	var running sync.WaitGroup
	if s.opts.Distincter != nil {
		running.Go(func() {
			all.Run(func() error {
				s.opts.Distincter.DistinctAll(x.context, calls)
				return nil
			})
		})
	}
	return func() {
		running.Wait()
		s.logIfPanic(ctx, all.Err)
		for i := range calls {
			x.Values[i].Err = calls[i].Err
			if s.logIfPanic(ctx, calls[i].Err); all.Err != nil {
				x.Values[i].Err = all.Err
			}
		}
	}
}

// errNoValues is the error of a server that does not count distinct values.
func errNoValues() error {
	return &twotier.InvalidError{Check: -1, Limit: -1, Field: "op",
		Detail: "there are no distinct values here"}
}

// logIfPanic logs the panic of an operation on values like that of a handler.
func (s *Server) logIfPanic(ctx *fasthttp.RequestCtx, err error) {
	var p *distinct.PanicError
	if errors.As(err, &p) {
		s.logPanic(ctx, p.What, p.Stack)
	}
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

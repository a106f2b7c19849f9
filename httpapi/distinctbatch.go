package httpapi

import (
	"errors"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/distinct"
)

// startValues begins the operations on values of a batch: in order for each key, concurrently for
// different keys. wait waits for them and stores their errors.
func (s *Server) startValues(ctx *fasthttp.RequestCtx, x *requestState) (wait func()) {
	calls := make([]distinct.Call, len(x.values))
	for i := range x.values {
		v := &x.values[i]
		calls[i] = distinct.Call{Op: &v.Op, Values: v.Add, Res: &v.res, Err: errNoValues()}
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
		s.notePanic(ctx, all.Err)
		for i := range calls {
			x.values[i].err = calls[i].Err
			if s.notePanic(ctx, calls[i].Err); all.Err != nil {
				x.values[i].err = all.Err
			}
		}
	}
}

// errNoValues is the error of a server that does not count distinct values.
func errNoValues() error {
	return &twotier.InvalidError{Check: -1, Limit: -1, Field: "op",
		Detail: "there are no distinct values here"}
}

// notePanic logs the panic of an operation on values like that of a handler.
func (s *Server) notePanic(ctx *fasthttp.RequestCtx, err error) {
	var p *distinct.PanicError
	if errors.As(err, &p) {
		s.logPanic(ctx, p.What, p.Stack)
	}
}

// merged iterates over the operations of a batch in their order: refused ones, operations on
// values, and the others.
type merged struct {
	bads   []bad
	values []valueOp
	index  int // of the next one
	ops    int // number of the others returned so far
}

// merge returns all operations of a batch, and their number.
func (d *decoder) merge() (m merged, total int) {
	return merged{bads: d.bads, values: d.values}, len(d.bads) + len(d.values) + len(d.Ops)
}

// next returns the next operation as one of three: its problem, its operation on values, or its
// index among the others.
func (m *merged) next() (wrong *problem, v *valueOp, op int) {
	i := m.index
	m.index++
	switch {
	case len(m.bads) > 0 && m.bads[0].index == i:
		wrong, m.bads = m.bads[0].problem, m.bads[1:]
	case len(m.values) > 0 && m.values[0].index == i:
		v, m.values = &m.values[0], m.values[1:]
	default:
		op = m.ops
		m.ops++
	}
	return wrong, v, op
}

// totals is the answer to a quiet batch.
type totals struct{ added, allowed, refused, failed int64 }

// values adds an operation on values that was executed.
func (t *totals) values(v *valueOp) {
	switch {
	case len(v.Add) == 0:
	case len(v.Op.Limits) == 0:
		t.added++
	case v.res.Allowed:
		t.allowed++
	default:
		t.refused++
	}
}

// events adds another operation that was executed.
func (t *totals) events(kind twotier.Kind, allowed bool) {
	switch {
	case kind == twotier.Add:
		t.added++
	case kind == twotier.Acquire && allowed:
		t.allowed++
	case kind == twotier.Acquire:
		t.refused++
	}
}

// countBatch counts the verdicts on the operations of a batch: acquires, and operations on values
// with limits.
func (s *Server) countBatch(x *requestState) {
	if !s.verdicts.Wanted() {
		return
	}
	run := s.verdicts.Begin(&x.arrival)
	x.CountVerdicts(&run)
	for i := range x.values {
		if v := &x.values[i]; v.err == nil {
			run.Values(&v.Values, &v.res)
		}
	}
	if run.Decided() {
		run.End(time.Since(x.arrival.Began))
	}
}

package httpapi

import (
	"fmt"
	"hash/maphash"
	"runtime/debug"
	"sync"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/syncer"
)

// valueLanes is how many operations on values of one batch are under way at the same time. Other
// nodes are asked for the keys that they own, one operation at a time in each lane.
const valueLanes = 16

// startValues begins the operations on values of a batch: those on one key in their order, others
// at the same time. It returns what waits for them.
func (s *Server) startValues(x *requestState) *sync.WaitGroup {
	running := new(sync.WaitGroup)
	seed := maphash.MakeSeed() // clients can't choose keys that all get into one lane
	var lanes [valueLanes][]*valueOp
	for i := range x.values {
		v := &x.values[i]
		if s.opts.Distincter == nil {
			v.err = &syncer.InvalidError{Check: -1, Limit: -1, Field: "op",
				Detail: "there are no distinct values here"}
			continue
		}
		lane := maphash.Bytes(seed, v.Op.Key) % valueLanes
		lanes[lane] = append(lanes[lane], v)
	}
	for _, lane := range lanes {
		if len(lane) == 0 {
			continue
		}
		running.Go(func() {
			for _, v := range lane {
				v.err = s.distinct(x, v)
			}
		})
	}
	return running
}

// distinct executes an operation on values. A panic becomes its error: nobody else would end it on
// this goroutine.
func (s *Server) distinct(x *requestState, v *valueOp) (err error) {
	defer func() {
		if what := recover(); what != nil {
			err = &panicked{what, debug.Stack()}
		}
	}()
	return s.opts.Distincter.Distinct(x.context, &v.Op, v.Add, &v.res)
}

// panicked is the error of an operation that panicked.
type panicked struct {
	what  any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprint("panic: ", p.what) }

// notePanics logs the panics of the operations on values of a batch as those of handlers.
func (s *Server) notePanics(ctx *fasthttp.RequestCtx, x *requestState) {
	for i := range x.values {
		if p, ok := x.values[i].err.(*panicked); ok {
			s.logPanic(ctx, p.what, p.stack)
		}
	}
}

// merged goes through the operations of a batch in their order: those that were refused when they
// were read, those on values, and the others.
type merged struct {
	bads   []bad
	values []valueOp
	index  int // of the next one
	ops    int // so many of the others came before
}

// merge returns all operations of a batch, and their number.
func (d *decoder) merge() (m merged, total int) {
	return merged{bads: d.bads, values: d.values}, len(d.bads) + len(d.values) + len(d.ops)
}

// next returns the next operation: what is wrong with it, or what it is on values, or its position
// among the others.
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

// totals is what a quiet batch is answered with.
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
func (t *totals) events(kind syncer.Kind, allowed bool) {
	switch {
	case kind == syncer.Add:
		t.added++
	case kind == syncer.Acquire && allowed:
		t.allowed++
	case kind == syncer.Acquire:
		t.refused++
	}
}

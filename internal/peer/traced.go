package peer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/trace"
)

// tracedCall, in place of the number of its tasks, begins a call that is part of a trace: the
// trace's context follows, and then the call. No call has 0 tasks.
const tracedCall = 0

func appendTrace(b []byte, c *trace.Context) []byte {
	b = append(append(append(b, c.ID[:]...), c.Span[:]...), c.Flags)
	return appendBytes(b, c.State)
}

func (r *reader) trace() *trace.Context {
	c := new(trace.Context)
	for _, to := range [][]byte{c.ID[:], c.Span[:]} {
		if len(r.b) < len(to) {
			r.fail()
			return nil
		}
		r.b = r.b[copy(to, r.b):]
	}
	c.Flags, c.State = r.byte(), r.string()
	if !c.Valid() || len(c.State) > trace.MaxState {
		r.fail()
	}
	return c
}

// tracedTasks are the tasks of a call that is part of a trace.
type tracedTasks struct {
	indexRange
	of *trace.Context
}

// tracedCalls returns the calls among some tasks that are part of a trace.
func (x *scratch) tracedCalls(tasks indexRange) []tracedTasks {
	from := slices.IndexFunc(x.traced, func(t tracedTasks) bool { return t.from >= tasks.from })
	if from < 0 {
		return nil
	}
	to := from
	for to < len(x.traced) && x.traced[to].to <= tasks.to {
		to++
	}
	return x.traced[from:to]
}

func (x *scratch) firstError(tasks indexRange) error {
	for i := tasks.from; i < tasks.to; i++ {
		if err := x.res[i].Err; err != nil {
			return err
		}
	}
	return nil
}

// operations is the name of calls with tasks.
const operations = "operations"

// service and spanName name the spans of work for other nodes.
const (
	service  = "twotier.peer"
	spanName = service + "/"
)

func endSpans(from string, x *scratch, calls []tracedTasks) {
	for _, k := range calls {
		if span := k.of.Recorded(); span != nil {
			x.describeTasks(span, k.indexRange)
			endSpan(span, from, operations, k.to-k.from, x.firstError(k.indexRange))
		}
	}
}

// describeTasks adds the subject of the first of some tasks to a span.
func (x *scratch) describeTasks(to trace.Span, tasks indexRange) {
	if tasks.from == tasks.to {
		return
	}
	op, res := &x.list.ops[tasks.from], &x.res[tasks.from]
	if len(op.Checks) > 0 {
		ns, key := op.Checks[0].NS, op.Checks[0].Key
		if twotier.Companion(ns) != "" {
			ns, _ = twotier.Accompanied(ns, key)
		}
		to.Set(trace.NamespaceAttr(cmp.Or(string(ns), twotier.DefaultNamespace)))
	}
	if op.Kind == twotier.Acquire && res.Err == nil && tasks.to == tasks.from+1 {
		verdict := "refused"
		if res.Allowed {
			verdict = "allowed"
		}
		to.Set(trace.VerdictAttr(verdict))
	}
}

// endSpan ends the span of a call by the process from. It leaves out the text of err, which may
// contain a key.
func endSpan(span trace.Span, from, method string, operations int, err error) {
	span.Set(slog.String("rpc.system", "twotier"), slog.String("rpc.service", service),
		slog.String("rpc.method", method), slog.String("twotier.peer", from),
		trace.OperationsAttr(operations))
	switch {
	case err == nil:
	case errors.Is(err, twotier.ErrUnknownOutcome):
		span.Fail("unknown outcome")
	default:
		span.Fail("not executed")
	}
	span.End()
}

// answerTraced answers a request that is part of a trace.
func (s *Server) answerTraced(ctx context.Context, from string, body []byte,
	by time.Time) []byte {
	r := reader{b: body}
	of := r.trace()
	if r.err != nil {
		return appendResponse(nil, nil, r.err)
	}
	of = trace.Begin(s.opt.Tracer, of, spanName+"question", time.Now())
	name, answer, err := s.answerRequest(trace.With(ctx, of), r.b, by)
	if span := of.Recorded(); span != nil {
		endSpan(span, from, name, 1, err)
	}
	return answer
}

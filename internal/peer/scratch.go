package peer

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/trace"
)

// scratch is reusable memory for executing the tasks of a message.
type scratch struct {
	list   taskList
	res    []twotier.Result
	ends   []int // number of tasks up to the end of each call
	groups []group
	traced []tracedTasks
	reply  []byte
}

// group is calls with a common deadline.
type group struct {
	end  int           // number of tasks up to its end
	lead time.Duration // difference between the message's deadline and its own
}

// read parses groups of calls, each of which is a number of tasks. It begins the spans of traced
// calls.
func (x *scratch) read(body []byte, tracer trace.Tracer) error {
	r := reader{b: body}
	x.list.reset()
	clear(x.traced)
	x.ends, x.groups, x.traced = x.ends[:0], x.groups[:0], x.traced[:0]
	for r.err == nil && len(r.b) > 0 {
		lead := time.Duration(min(r.uint(), uint64(maxBudget/time.Microsecond))) * time.Microsecond
		for calls := r.itemCount(); calls > 0 && r.err == nil; calls-- {
			x.readCall(&r, tracer)
		}
		x.groups = append(x.groups, group{len(x.list.ops), lead})
	}
	if r.err != nil {
		return r.err
	}
	x.list.linkChecks()
	if missing := len(x.list.ops) - cap(x.res); missing > 0 {
		x.res = append(x.res[:cap(x.res)], make([]twotier.Result, missing)...)
	}
	x.res = x.res[:len(x.list.ops)]
	for i := range x.res {
		x.res[i].Reset()
	}
	return nil
}

// readCall parses the tasks of a call.
func (x *scratch) readCall(r *reader, tracer trace.Tracer) {
	tasks, from, steps := r.itemCount(), len(x.list.ops), len(x.list.tasks)
	var of *trace.Context
	if tasks == tracedCall && r.err == nil {
		of = r.trace()
		tasks = r.itemCount()
	}
	for i := 0; i < tasks && r.err == nil; i++ {
		x.list.read(r, i == 0)
	}
	if of != nil && r.err == nil {
		of = trace.Begin(tracer, of, spanName+operations, time.Now())
		for i := range x.list.tasks[steps:] {
			x.list.tasks[steps+i].Trace = of
		}
		x.traced = append(x.traced, tracedTasks{indexRange{from, len(x.list.ops)}, of})
	}
	x.ends = append(x.ends, len(x.list.ops))
}

// serve executes the tasks of a process, until by at the latest. Groups have different deadlines
// and don't wait for each other.
func (x *scratch) serve(ctx context.Context, s *Server, from string, by time.Time) {
	var others sync.WaitGroup
	at := 0
	for i, g := range x.groups {
		tasks, until := indexRange{at, g.end}, by.Add(-g.lead)
		at = g.end
		if i == len(x.groups)-1 {
			x.serveUntil(ctx, s, from, tasks, until)
			break
		}
		others.Go(func() { x.serveUntil(ctx, s, from, tasks, until) })
	}
	others.Wait()
}

// serveUntil executes some tasks, unless their time is up. It ends slightly before by: an answer
// that reports unknown outcomes or lateness is worth more than none.
func (x *scratch) serveUntil(ctx context.Context, s *Server, from string, tasks indexRange,
	by time.Time) {
	if calls := x.tracedCalls(tasks); len(calls) > 0 {
		defer endSpans(from, x, calls)
	}
	left := time.Until(by)
	if left <= 0 {
		for i := tasks.from; i < tasks.to; i++ {
			x.res[i].Err = rpc.ErrLate
		}
		return
	}
	ctx, cancel := context.WithDeadline(ctx, by.Add(-left/slack))
	defer cancel()
	x.serveInOrder(ctx, s.opt.Node, tasks)
}

// serveInOrder executes tasks in order: adjacent operations together, and adjacent other tasks
// together.
func (x *scratch) serveInOrder(ctx context.Context, local Local, tasks indexRange) {
	l := &x.list
	other, _ := slices.BinarySearch(l.places, tasks.from)
	for at := tasks.from; at < tasks.to; {
		end := tasks.to
		if other < len(l.places) {
			end = min(end, l.places[other])
		}
		if at < end {
			local.Serve(ctx, l.ops[at:end], x.res[at:end])
			at = end
		}
		first := other
		for ; at < tasks.to && other < len(l.places) && l.places[other] == at; at++ {
			other++
		}
		if other > first {
			local.ServeTasks(ctx, l.tasks[first:other], x.res[at-(other-first):at])
		}
	}
}

// appendResults appends the results of each call, preceded by their length.
func (x *scratch) appendResults(b []byte) []byte {
	at := 0
	for _, end := range x.ends {
		start := len(b)
		b = append(b, make([]byte, lengthBytes)...)
		var t timeDeltas
		for ; at < end; at++ {
			b = appendResult(b, &x.list.ops[at], &x.res[at], &t)
		}
		binary.LittleEndian.PutUint32(b[start:], uint32(len(b)-start-lengthBytes))
	}
	return b
}

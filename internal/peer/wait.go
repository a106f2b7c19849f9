package peer

import (
	"context"
	"fmt"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/batching"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/trace"
	"twotier.dev/twotier/ring"
)

// call is a set of tasks under way. It has separate memory, because the waiting caller may give up
// before a worker is done with it.
type call struct {
	batching.Call
	body  []byte
	size  int // of body, if it spelled out all limits
	reply []byte
	tasks int
	by    time.Time
	trace *trace.Context // nil if it is part of no trace
}

// Size implements batching.Item.
func (k *call) Size() (ops, bytes int) { return k.tasks, k.size }

// waiter is a caller that waits for nodes, and its memory.
type waiter struct {
	done  chan struct{} // signaled when one of the calls has finished
	parts []part
	left  int // unfinished parts
}

// part is the work of one node, and the call that carries it, nil once the part is over.
type part struct {
	work
	to   *ring.Member
	call *call
}

// Do implements node.Peers.
func (c *Client) Do(ctx context.Context, to *ring.Member, tasks []rpc.Task, res []twotier.Result) {
	w := c.waits.Get().(*waiter)
	c.start(ctx, w, part{work: work{tasks: tasks, res: res}, to: to})
	c.awaitParts(ctx, w, func(int) {})
}

// DoAll implements node.Peers.
func (c *Client) DoAll(ctx context.Context, groups []rpc.Group, ops []twotier.Op,
	res []twotier.Result, meanwhile func(), over func(group int)) {
	w := c.waits.Get().(*waiter)
	for i, g := range groups {
		c.start(ctx, w, part{work: work{ops: ops, at: g.At, res: res}, to: g.To})
		if w.parts[i].call == nil {
			over(i)
		}
	}
	meanwhile()
	c.awaitParts(ctx, w, over)
}

// start adds a part, and submits its call. A part that can't be submitted is over.
func (c *Client) start(ctx context.Context, w *waiter, p part) {
	p.trace = trace.From(ctx)
	var err error
	if p.call, err = c.submit(ctx, w, &p); err != nil {
		p.fail(wrapNode(err, p.to))
	} else {
		w.left++
	}
	w.parts = append(w.parts, p)
}

// submit queues the work of a part.
func (c *Client) submit(ctx context.Context, w *waiter, p *part) (*call, error) {
	l, err := c.link(p.to)
	if err != nil {
		return nil, err
	}
	if l.open.Load() {
		return nil, rpc.ErrUnreachable
	}
	by := c.deadline(ctx)
	if time.Until(by) < minBudget || ctx.Err() != nil {
		return nil, rpc.ErrLate
	}
	k := c.calls.Get().(*call)
	k.ResetTo(w.done)
	k.by, k.trace = by, p.trace
	p.encode(k)
	if k.size > maxBody {
		return nil, fmt.Errorf("%w: a forwarded batch of %d bytes, want at most %d",
			twotier.ErrOverload, k.size, maxBody)
	}
	return k, l.submit(k, l.queues[p.class()])
}

// deadline returns when a caller gives up, at the latest after maxBudget: the encoding of calls
// that share a message bounds how much earlier each may end.
func (c *Client) deadline(ctx context.Context) time.Time {
	within := c.opt.Timeout
	if by, ok := ctx.Deadline(); ok {
		within = time.Until(by)
	}
	return time.Now().Add(min(within, maxBudget))
}

// awaitParts calls over with each part when it is over, until all are or ctx is done. If ctx ends
// first, the outcomes of the remaining parts are unknown, except where no worker has taken the
// call.
func (c *Client) awaitParts(ctx context.Context, w *waiter, over func(part int)) {
	for w.left > 0 {
		var why error
		select {
		case <-w.done: // or a signal for an earlier caller
		case <-ctx.Done():
			why = ctx.Err()
		}
		for i := range w.parts {
			if p := &w.parts[i]; p.call != nil && c.finishPart(p, why) {
				w.left--
				over(i)
			}
		}
	}
	clear(w.parts)
	w.parts = w.parts[:0]
	c.waits.Put(w)
}

// finishPart reports whether a part is over, and sets its results if so. With a reason to give up,
// every part is.
func (c *Client) finishPart(p *part, why error) bool {
	k := p.call
	over, err := k.Finished()
	outcome := batching.Finished
	switch {
	case why != nil:
		outcome, err = k.GiveUp(why)
	case !over:
		return false
	}
	p.call = nil
	switch {
	case outcome == batching.Withdrawn:
		err = rpc.ErrLate
	case outcome == batching.Left:
		err = fmt.Errorf("%w: %v", twotier.ErrUnknownOutcome, err)
	case err == nil:
		if err = p.decode(k.reply); err != nil {
			err = fmt.Errorf("%w: %w", twotier.ErrUnknownOutcome, err)
		}
	}
	if outcome == batching.Finished {
		k.reply = nil
		c.calls.Put(k)
	}
	if err != nil {
		p.fail(wrapNode(err, p.to))
	}
	return true
}

// work is a caller's work for another node: tasks, or some operations of a batch. It is encoded
// from the caller's memory, and its results are decoded into that memory.
type work struct {
	tasks []rpc.Task
	ops   []twotier.Op
	at    []int            // positions in ops and res; nil if there are tasks
	res   []twotier.Result // parallel to tasks or ops
	trace *trace.Context   // of the work; nil if it is part of no trace
}

func (w *work) len() int {
	if w.at != nil {
		return len(w.at)
	}
	return len(w.tasks)
}

func (w *work) op(i int) *twotier.Op {
	if w.at != nil {
		return &w.ops[w.at[i]]
	}
	return &w.tasks[i].Op
}

func (w *work) result(i int) *twotier.Result {
	if w.at != nil {
		return &w.res[w.at[i]]
	}
	return &w.res[i]
}

// fail sets the error of each result.
func (w *work) fail(err error) {
	for i := range w.len() {
		res := w.result(i)
		res.Reset()
		res.Err = err
	}
}

// encode writes the work into a call.
func (w *work) encode(k *call) {
	k.tasks = w.len()
	b := appendUint(k.body[:0], uint64(k.tasks))
	limits := 0
	var last *twotier.Op
	for i := range k.tasks {
		op := w.op(i)
		if w.at != nil {
			b = appendOp(b, op, last)
			last = op
		} else {
			b = appendTask(b, &w.tasks[i])
		}
		for j := range op.Checks {
			limits += len(op.Checks[j].Limits)
		}
	}
	k.body, k.size = b, max(len(b), limits*limitBytes)
}

// class returns the class of the work, which is the class of its slowest task.
func (w *work) class() class {
	of := quick
	for i := range w.tasks {
		switch w.tasks[i].Verb {
		case rpc.VerbReset, rpc.VerbDrop:
			return resets // never sent together with others
		case rpc.VerbCoordinate:
			of = nodeBound
		}
	}
	for i := 0; of == quick && i < w.len(); i++ {
		// Taking back may wait until other nodes have stored their counts.
		if op := w.op(i); op.Ack >= twotier.AckStore || op.TakesBack() {
			of = storeBound
		}
	}
	return of
}

// decode reads the results from a reply.
func (w *work) decode(reply []byte) error {
	r, t := reader{b: reply}, timeDeltas{}
	for i := range w.len() {
		readResult(&r, w.op(i), w.result(i), &t)
	}
	return r.checkEnd()
}

package peer

import (
	"context"
	"sync"
	"time"

	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/rpc"
)

// scratch is reusable memory for carrying out the tasks of a message.
type scratch struct {
	list   taskList
	res    []node.Result
	ends   []int // number of tasks up to the end of each call
	groups []group
}

// group is calls with a common deadline.
type group struct {
	end  int           // number of tasks up to its end
	lead time.Duration // how much earlier its deadline is than that of the message
}

// read parses groups of calls, each of which is a number of tasks.
func (x *scratch) read(body []byte) error {
	r := reader{b: body}
	x.list.reset()
	x.ends, x.groups = x.ends[:0], x.groups[:0]
	for r.err == nil && len(r.b) > 0 {
		lead := time.Duration(min(r.uint(), uint64(maxBudget/time.Microsecond))) * time.Microsecond
		for range r.count() {
			for range r.count() {
				x.list.read(&r)
			}
			x.ends = append(x.ends, len(x.list.tasks))
		}
		x.groups = append(x.groups, group{len(x.list.tasks), lead})
	}
	if r.err != nil {
		return r.err
	}
	x.list.link()
	for len(x.res) < len(x.list.tasks) {
		x.res = append(x.res, node.Result{})
	}
	x.res = x.res[:len(x.list.tasks)]
	for i := range x.res {
		x.res[i].Reset()
	}
	return nil
}

// serve carries out the tasks, until by at the latest. Groups have different deadlines and don't
// wait for each other.
func (x *scratch) serve(ctx context.Context, local Local, by time.Time) {
	var others sync.WaitGroup
	at := 0
	for i, g := range x.groups {
		tasks, res, until := x.list.tasks[at:g.end], x.res[at:g.end], by.Add(-g.lead)
		at = g.end
		if i == len(x.groups)-1 {
			serveUntil(ctx, local, tasks, res, until)
			break
		}
		others.Go(func() { serveUntil(ctx, local, tasks, res, until) })
	}
	others.Wait()
}

// serveUntil carries out tasks, unless their time is up. It ends slightly before by: an answer that
// says that some outcomes are unknown, or came too late, is worth more than none.
func serveUntil(ctx context.Context, local Local, tasks []rpc.Task, res []node.Result,
	by time.Time) {
	left := time.Until(by)
	if left <= 0 {
		for i := range res {
			res[i].Err = rpc.ErrLate
		}
		return
	}
	ctx, cancel := context.WithDeadline(ctx, by.Add(-left/slack))
	defer cancel()
	local.Serve(ctx, tasks, res)
}

// appendResults appends the results of each call, preceded by their length.
func (x *scratch) appendResults(b []byte) []byte {
	at := 0
	var call []byte
	for _, end := range x.ends {
		call = call[:0]
		for ; at < end; at++ {
			call = appendResult(call, &x.res[at])
		}
		b = appendBytes(b, call)
	}
	return b
}

package node

import (
	"context"
	"fmt"
	"sync"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/trace"
)

// Serve runs another node's operations, in order, and sets Err in each result. It forwards nothing:
// an operation on keys that this node does not own fails with an rpc.MovedError that names the
// owner.
func (n *Node) Serve(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	if n.acceptTasks(len(ops), res) {
		n.router.Serve(ctx, ops, res)
	}
}

// ServeTasks runs other tasks of another node, and sets Err in each result. Tasks on one key that
// go to the same server run in order, except resets, which may overlap.
func (n *Node) ServeTasks(ctx context.Context, tasks []rpc.Task, res []twotier.Result) {
	if !n.acceptTasks(len(tasks), res) {
		return
	}
	for at := 0; at < len(tasks); {
		end := at + 1
		for end < len(tasks) && taskServerOf(tasks[end].Verb) == taskServerOf(tasks[at].Verb) {
			end++
		}
		n.serveByOneServer(ctx, tasks[at:end], res[at:end])
		at = end
	}
}

// taskServer is the part of a node that runs another node's tasks.
type taskServer uint8

// The servers.
const (
	itself taskServer = iota
	router
	participant
)

func taskServerOf(v rpc.Verb) taskServer {
	switch {
	case v == rpc.VerbCoordinate:
		return router
	case v.IsStep():
		return participant
	}
	return itself
}

// serveByOneServer runs tasks of one server.
func (n *Node) serveByOneServer(ctx context.Context, tasks []rpc.Task, res []twotier.Result) {
	switch taskServerOf(tasks[0].Verb) {
	case router:
		n.coordinateAcquires(ctx, tasks, res)
	case participant:
		n.parts.Serve(ctx, tasks, res)
	default:
		n.serveEach(ctx, tasks, res)
	}
}

// serveEach runs tasks without an operation at the same time, because each may wait for a different
// part of the store.
func (n *Node) serveEach(ctx context.Context, tasks []rpc.Task, res []twotier.Result) {
	var others sync.WaitGroup
	for i := range tasks[1:] {
		others.Go(func() { res[i+1].Err = n.serveTask(ctx, &tasks[i+1]) })
	}
	res[0].Err = n.serveTask(ctx, &tasks[0])
	others.Wait()
}

// coordinateAcquires runs acquires over several owners, grouped by trace and all groups at the same
// time: the tasks that an acquire sends to other nodes belong to its trace.
func (n *Node) coordinateAcquires(ctx context.Context, tasks []rpc.Task, res []twotier.Result) {
	var others sync.WaitGroup
	for at := 0; at < len(tasks); {
		of, end := tasks[at].Trace, at+1
		for end < len(tasks) && tasks[end].Trace == of {
			end++
		}
		some, out := tasks[at:end], res[at:end]
		if at = end; at < len(tasks) {
			others.Go(func() { n.router.Coordinate(trace.With(ctx, of), some, out) })
		} else {
			n.router.Coordinate(trace.With(ctx, of), some, out)
		}
	}
	others.Wait()
}

// acceptTasks reports whether this node accepts tasks from other nodes. If not, it sets Err.
func (n *Node) acceptTasks(tasks int, res []twotier.Result) bool {
	if !n.opened.Load() || n.closed.Load() {
		for i := range res {
			res[i].Err = twotier.ErrClosed
		}
		return false
	}
	n.served.Add(int64(tasks))
	return true
}

// serveTask runs a task without an operation.
func (n *Node) serveTask(ctx context.Context, task *rpc.Task) error {
	switch task.Verb {
	case rpc.VerbReset:
		return n.forget(ctx, &task.Op.Checks[0])
	case rpc.VerbDrop:
		n.refused.Reset(&task.Op.Checks[0])
		return n.dropLocal(ctx, &task.Op.Checks[0], true)
	}
	return fmt.Errorf("%w: unknown verb %d", twotier.ErrUnavailable, task.Verb)
}

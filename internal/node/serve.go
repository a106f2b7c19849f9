package node

import (
	"context"
	"fmt"

	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/syncer"
)

// Serve runs another node's tasks, in order, and sets Err in each result. It forwards nothing: a
// task about keys that this node does not decide about fails with an rpc.MovedError that names the
// node that does.
func (n *Node) Serve(ctx context.Context, tasks []rpc.Task, res []Result) {
	if !n.opened.Load() || n.closed.Load() {
		for i := range res {
			res[i].Err = syncer.ErrClosed
		}
		return
	}
	n.served.Add(int64(len(tasks)))
	for at := 0; at < len(tasks); {
		end := at
		for end < len(tasks) && tasks[end].Verb == rpc.VerbDo {
			end++
		}
		if end > at {
			n.router.Serve(ctx, tasks[at:end], res[at:end])
		}
		for at = end; at < len(tasks) && tasks[at].Verb != rpc.VerbDo; at++ {
			res[at].Err = n.serveOther(ctx, &tasks[at], &res[at])
		}
	}
}

// serveOther runs a task that is not an operation.
func (n *Node) serveOther(ctx context.Context, task *rpc.Task, res *Result) error {
	switch task.Verb {
	case rpc.VerbReserve, rpc.VerbConfirm, rpc.VerbUndo:
		return n.parts.Serve(ctx, task, res)
	case rpc.VerbReset:
		return n.forget(ctx, &task.Op.Checks[0])
	case rpc.VerbDrop:
		n.refused.Forget(&task.Op.Checks[0])
		return n.dropLocal(ctx, &task.Op.Checks[0], true)
	}
	return fmt.Errorf("%w: unknown verb %d", syncer.ErrUnavailable, task.Verb)
}

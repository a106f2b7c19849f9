package node

import (
	"context"
	"fmt"

	"twotier.dev/twotier/internal/hotkeys"
	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/syncer"
)

// Serve carries out tasks of another node, in order, and sets Err in each result. Nothing is
// forwarded: a task about keys that this node does not decide about is refused with a
// rpc.MovedError that says who does.
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

// serveOther carries out a task that is no operation.
func (n *Node) serveOther(ctx context.Context, task *rpc.Task, res *Result) error {
	switch task.Verb {
	case rpc.VerbReserve, rpc.VerbConfirm, rpc.VerbUndo:
		return n.parts.Serve(ctx, task, res)
	case rpc.VerbReset:
		return n.forget(ctx, &task.Op.Checks[0])
	case rpc.VerbDrop:
		n.refused.Forget(&task.Op.Checks[0])
		return n.dropHere(ctx, &task.Op.Checks[0], true)
	}
	return fmt.Errorf("%w: unknown verb %d", syncer.ErrUnavailable, task.Verb)
}

// Answer answers a question of another node.
func (n *Node) Answer(ctx context.Context, question any) (answer any, err error) {
	if !n.opened.Load() || n.closed.Load() {
		return nil, syncer.ErrClosed
	}
	switch q := question.(type) {
	case *PingQuestion:
		return nil, nil
	case *ownership.HoldingsRequest:
		return n.owned.Holdings(q), nil
	case *ownership.ClaimRequest:
		return n.owned.HandOver(ctx, q), nil
	case *ownership.OfferRequest:
		n.owned.Offered(q)
		return nil, nil
	case *multiowner.OutcomeRequest:
		return n.parts.Outcome(q)
	case *TopQuestion:
		keys, err := n.top.Top(ctx, q.Limit, q.Window)
		return &TopAnswer{keys}, err
	case *SeriesQuestion:
		bucket, points, err := n.opt.Counter.Series(ctx, q.NS, q.Key, q.Window, false)
		return &SeriesAnswer{bucket, points}, err
	case *hotkeys.LeaseRequest:
		return n.hot.Accept(ctx, q), nil
	case *modes.Request:
		return nil, n.modes.Step(ctx, q)
	case *StatusQuestion:
		return n.status(), nil
	}
	return nil, fmt.Errorf("%w: unknown question %T", syncer.ErrUnavailable, question)
}

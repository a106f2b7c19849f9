package node

import (
	"context"
	"errors"
	"fmt"

	"twotier/internal/hotkeys"
	"twotier/internal/modes"
	"twotier/internal/multiowner"
	"twotier/internal/ownership"
	"twotier/internal/retry"
	"twotier/internal/rpc"
	"twotier/syncer"
)

// Serve carries out tasks of another node, in order, and sets Err in each result. Nothing is forwarded: a task about keys
// that this node does not decide about is refused with a rpc.MovedError that says who does.
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
			n.serveOps(ctx, tasks[at:end], res[at:end])
		}
		for at = end; at < len(tasks) && tasks[at].Verb != rpc.VerbDo; at++ {
			res[at].Err = n.serveOther(ctx, &tasks[at], &res[at])
		}
	}
}

// serveOps carries out operations.
func (n *Node) serveOps(ctx context.Context, tasks []rpc.Task, res []Result) {
	if n.inRedis() {
		for i := range tasks {
			res[i].Err = n.doInRedis(ctx, &tasks[i].Op, &res[i])
		}
		return
	}
	if len(tasks) == 1 {
		res[0].Err = n.here(ctx, &tasks[0].Op, &res[0])
	} else {
		ops := make([]Op, len(tasks))
		for i := range tasks {
			ops[i] = tasks[i].Op
		}
		n.allHere(ctx, ops, res)
	}
	n.hot.Observe(tasks)
	for i := range tasks {
		if errors.Is(res[i].Err, syncer.ErrNotOwner) {
			res[i].Err = n.serveMoved(ctx, &tasks[i], &res[i])
		}
	}
}

// serveMoved carries out an operation whose keys this node did not decide about when it was asked.
func (n *Node) serveMoved(ctx context.Context, task *rpc.Task, res *Result) error {
	for attempts := retry.Within(ownership.WaitTimeout); attempts.Next(ctx); {
		shares, err := n.whereabouts(ctx, &task.Op)
		switch {
		case errors.Is(err, errModeChanged):
			return n.doInRedis(ctx, &task.Op, res)
		case err != nil || len(shares) > 1:
			return syncer.ErrNotOwner // who asked has to divide it
		case shares[0].To != nil:
			return &rpc.MovedError{To: *shares[0].To}
		}
		if err := n.here(ctx, &task.Op, res); !errors.Is(err, syncer.ErrNotOwner) {
			return err
		}
	}
	return syncer.ErrNotOwner
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

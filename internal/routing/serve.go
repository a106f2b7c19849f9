package routing

import (
	"context"
	"errors"

	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/syncer"
)

// Serve runs operations that another node has forwarded, in order, and sets Err in each result. It
// forwards nothing: an operation on keys that this node does not decide about fails with an
// rpc.MovedError that says who does, or with syncer.ErrNotOwner.
func (r *Router) Serve(ctx context.Context, tasks []rpc.Task, res []syncer.Result) {
	switch {
	case r.opt.Modes.InRedis():
		for i := range tasks {
			res[i].Err = r.redis(ctx, &tasks[i].Op, &res[i])
		}
	case len(tasks) == 1:
		res[0].Err = r.local(ctx, &tasks[0].Op, &res[0])
		r.opt.Leases.Observe(tasks)
	default:
		ops := make([]syncer.Op, len(tasks))
		for i := range tasks {
			ops[i] = tasks[i].Op
		}
		r.allLocal(ctx, ops, res)
		r.opt.Leases.Observe(tasks)
	}
	for i := range tasks {
		err := res[i].Err
		if errors.Is(err, syncer.ErrNotOwner) || errors.Is(err, modes.ErrChanged) {
			res[i].Err = r.serveMoved(ctx, &tasks[i].Op, &res[i])
		}
	}
}

// serveMoved runs an operation whose keys this node did not decide about when it arrived.
func (r *Router) serveMoved(ctx context.Context, op *syncer.Op, res *syncer.Result) error {
	for search := retry.Within(ownership.WaitTimeout); ; {
		d, err := r.locate(ctx, search, op)
		switch {
		case err != nil || d.to == several:
			return syncer.ErrNotOwner // who asked has to divide it, or to look again
		case d.to == forward:
			return &rpc.MovedError{To: *d.owner}
		}
		err = r.carryOut(ctx, &d, op, res)
		if !errors.Is(err, syncer.ErrNotOwner) && !errors.Is(err, modes.ErrChanged) {
			return err
		}
	}
}

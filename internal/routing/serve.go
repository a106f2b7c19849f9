package routing

import (
	"context"
	"errors"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/rpc"
)

// Serve runs operations forwarded by another node, in order, and sets Err in each result. It
// forwards nothing: an operation on keys that this node does not own fails with an rpc.MovedError
// that names the owner, or with twotier.ErrNotOwner.
func (r *Router) Serve(ctx context.Context, ops []twotier.Op, res []twotier.Result) {
	switch {
	case r.view.Load().InRedis:
		for i := range ops {
			res[i].Err = r.runInRedis(ctx, &ops[i], &res[i])
		}
	case len(ops) == 1:
		res[0].Err = r.execute(ctx, &decision{to: memoryDestination(&ops[0])}, &ops[0], &res[0])
	default:
		r.doAllLocal(ctx, ops, res)
	}
	for i := range ops {
		err := res[i].Err
		if errors.Is(err, twotier.ErrNotOwner) || errors.Is(err, modes.ErrChanged) {
			r.opt.Loans.Sample(ops[i : i+1])
			res[i].Err = r.serveMoved(ctx, &ops[i], &res[i])
		}
	}
}

// serveMoved runs an operation whose keys this node did not own when it arrived.
func (r *Router) serveMoved(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	for search := retry.Within(ownership.WaitTimeout); ; {
		d, err := r.decideByOwners(ctx, search, op)
		switch {
		case err != nil || d.to == several:
			return twotier.ErrNotOwner // the sender has to divide it, or to look again
		case d.to == forward:
			return &rpc.MovedError{To: *d.owner}
		}
		err = r.execute(ctx, &d, op, res)
		if !errors.Is(err, twotier.ErrNotOwner) && !errors.Is(err, modes.ErrChanged) {
			return err
		}
	}
}

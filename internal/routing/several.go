package routing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

// relayAcquire has the owner of one of the keys run an acquire.
func (r *Router) relayAcquire(
	ctx context.Context, to *ring.Member, op *twotier.Op, res *twotier.Result,
) error {
	one := []twotier.Result{*res}
	r.relayGroup(ctx, to, []int{0}, []twotier.Op{*op}, one)
	*res = one[0]
	return r.countIfDenied(ctx, op, res, res.Err)
}

// countIfDenied counts a refused acquire if the operation asks for that.
func (r *Router) countIfDenied(
	ctx context.Context, op *twotier.Op, res *twotier.Result, err error,
) error {
	res.Err = nil
	if err == nil && !res.Allowed && op.Counts(res) {
		return r.countDenied(ctx, op, res)
	}
	return err
}

// countDenied counts a refused acquire for an operation that asks for it, and records the time in
// its result.
func (r *Router) countDenied(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	for i := range op.Checks {
		c := op.Checks[i]
		if c.N == 0 || c.IsLease() {
			continue
		}
		c.Limits = nil
		add := twotier.Op{Kind: twotier.Add, TS: op.TS, Ack: op.Ack, Checks: []twotier.Check{c}}
		var counted twotier.Result
		if err := r.Do(ctx, &add, &counted); err != nil {
			return fmt.Errorf("%w: not all of it was counted: %v", twotier.ErrUnknownOutcome, err)
		}
		if i < len(res.Checks) && len(counted.Checks) > 0 { // another node's result may be short
			res.Checks[i].TS = counted.Checks[0].TS
		}
	}
	return nil
}

// Coordinate runs acquires over several owners that other nodes have sent here because this node
// owns one of the keys, and sets Err in each result. The acquires must have no key in common. Where
// this node owns no key, or can't reach another owner, the error is twotier.ErrNotOwner, and
// nothing was counted.
func (r *Router) Coordinate(ctx context.Context, tasks []rpc.Task, res []twotier.Result) {
	list := make([]multiowner.Request, 0, len(tasks))
	for i := range tasks {
		if ctx.Err() != nil {
			res[i].Err = errExpired
			continue
		}
		switch d := r.decideByTable(&tasks[i].Op, false); d.to {
		case several:
			list = append(list,
				multiowner.Request{Op: &tasks[i].Op, Res: &res[i], Parts: d.parts})
		case local:
			tasks[i].Op.CountDenied, tasks[i].Op.Charge = false, false // the sender counts refusals
			res[i].Err = r.execute(ctx, &d, &tasks[i].Op, &res[i])
		default:
			res[i].Err = twotier.ErrNotOwner
		}
	}
	r.opt.Acquirer.Acquire(ctx, list)
	for i := range list {
		if errors.Is(list[i].Res.Err, rpc.ErrUnreachable) {
			list[i].Res.Err = twotier.ErrNotOwner // the sender may reach it
		}
	}
}

// maxSeveral is the number of operations with several owners that a batch retries at a time.
const maxSeveral = 64

// acquireAllAcrossOwners runs the operations of a batch that have several owners and no key in
// common: the ones that this node coordinates together, the relayed ones in one message per
// coordinator.
func (r *Router) acquireAllAcrossOwners(
	ctx context.Context, positions []int, ops []twotier.Op, res []twotier.Result,
) {
	decisions := make([]decision, len(positions))
	own := make([]multiowner.Request, 0, len(positions))
	relayed := map[*ring.Member][]int{}
	for k, i := range positions {
		d := r.decideByTable(&ops[i], false)
		switch decisions[k] = d; d.to {
		case several:
			own = append(own, multiowner.Request{Op: &ops[i], Res: &res[i], Parts: d.parts})
		case relay:
			relayed[d.owner] = append(relayed[d.owner], i)
		default:
			res[i].Err = twotier.ErrNotOwner // the table has just changed
		}
	}
	var done sync.WaitGroup
	for to, group := range relayed {
		done.Go(func() { r.relayGroup(ctx, to, group, ops, res) })
	}
	r.opt.Acquirer.Acquire(ctx, own)
	done.Wait()
	r.retryAndCountDenied(ctx, decisions, positions, ops, res)
}

// relayGroup has another node coordinate the operations at the given positions.
func (r *Router) relayGroup(
	ctx context.Context, to *ring.Member, group []int, ops []twotier.Op, res []twotier.Result,
) {
	tasks, out := make([]rpc.Task, len(group)), make([]twotier.Result, len(group))
	for k, i := range group {
		tasks[k], out[k] = rpc.Task{Verb: rpc.VerbCoordinate, Op: ops[i]}, res[i]
	}
	r.opt.Peers.Do(ctx, to, tasks, out)
	for k, i := range group {
		res[i] = out[k]
	}
}

// retryAndCountDenied retries the operations whose owners have changed, and counts refused
// operations that ask for it.
func (r *Router) retryAndCountDenied(
	ctx context.Context, decisions []decision, positions []int, ops []twotier.Op,
	res []twotier.Result,
) {
	var open []int
	for k, i := range positions {
		if res[i].Err != nil || !res[i].Allowed && ops[i].Counts(&res[i]) {
			open = append(open, k)
		}
	}
	var done sync.WaitGroup
	var next atomic.Int64
	for range min(len(open), maxSeveral) {
		done.Go(func() {
			for n := next.Add(1) - 1; n < int64(len(open)); n = next.Add(1) - 1 {
				k := open[n]
				i := positions[k]
				err := r.countIfDenied(ctx, &ops[i], &res[i], res[i].Err)
				res[i].Err = r.retry(ctx, decisions[k], err, &ops[i], &res[i])
			}
		})
	}
	done.Wait()
}

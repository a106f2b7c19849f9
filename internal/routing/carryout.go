package routing

import (
	"context"
	"errors"
	"fmt"

	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// local runs an operation in this node's memory. A new key that memory has no room for is served
// from Redis.
func (r *Router) local(ctx context.Context, op *syncer.Op, res *syncer.Result) error {
	err := r.opt.Counter.Do(ctx, op, res)
	if err != nil && r.servesFromRedis(op, err) {
		err = r.opt.Direct.Do(ctx, op, res)
	}
	r.opt.Mark(res)
	return err
}

// servesFromRedis reports whether an operation that memory has no room for can run in Redis: it has
// one key, which is not in memory, and Redis is up. If Redis is down, an immediate error is better
// than waiting for nothing.
func (r *Router) servesFromRedis(op *syncer.Op, err error) bool {
	return r.opt.Direct != nil && len(op.Checks) == 1 && errors.Is(err, syncer.ErrFull) &&
		r.opt.StoreUp()
}

// redis runs an operation in Redis.
func (r *Router) redis(ctx context.Context, op *syncer.Op, res *syncer.Result) error {
	err := r.opt.Modes.During(ctx, modes.Redis, func() error {
		return r.opt.Direct.Do(ctx, op, res)
	})
	r.opt.Mark(res)
	return err
}

// fallback counts in place of owners that can't be reached. What this node and the others count
// meets in the store within three flush intervals.
func (r *Router) fallback(ctx context.Context, op *syncer.Op, res *syncer.Result) error {
	if ctx.Err() != nil {
		return errExpired
	}
	err := r.opt.Modes.During(ctx, modes.TwoTier, func() error {
		return r.localAsNonOwner(ctx, op, res, false)
	})
	if errors.Is(err, syncer.ErrNotOwner) {
		return errMoving
	}
	return err
}

// localAsNonOwner runs an operation on another node's keys in this node's memory, in place of that
// node or along with it.
func (r *Router) localAsNonOwner(
	ctx context.Context, op *syncer.Op, res *syncer.Result, leased bool,
) error {
	nonOwner := *op
	nonOwner.AllowNonOwner, nonOwner.RequireStore = true, leased
	err := r.opt.Counter.Do(ctx, &nonOwner, res)
	r.opt.Mark(res)
	return err
}

// forward sends an operation to the owner of all its keys, unless this node can answer it.
func (r *Router) forward(
	ctx context.Context, to *ring.Member, op *syncer.Op, res *syncer.Result,
) error {
	if done, err := r.shortcut(ctx, to, op, res); done {
		return err
	}
	m := r.messages.Get().(*message)
	defer r.messages.Put(m)
	m.tasks[0] = rpc.Task{Op: *op}
	m.res[0], *res = *res, m.res[0] // so that the memory of res is used
	err := r.send(ctx, to, m)
	m.res[0], *res = *res, m.res[0]
	m.tasks[0] = rpc.Task{}
	if err == nil {
		r.opt.Refusals.Note(op, res)
	}
	return err
}

// shortcut runs an operation on another node's key and reports true, if this node has a lease of
// the key and the store, where the counts meet, is up; or if it remembers that the owner refuses.
func (r *Router) shortcut(
	ctx context.Context, owner *ring.Member, op *syncer.Op, res *syncer.Result,
) (done bool, err error) {
	if op.Checks[0].N < 0 {
		// Forget now, before later operations of the same batch are compared with a refusal.
		r.opt.Refusals.Forget(&op.Checks[0])
	}
	if !r.opt.Leases.Leased(op, owner) {
		return r.opt.Refusals.Refuse(op, res), nil
	}
	if !r.opt.Modes.Enter(modes.TwoTier) {
		return false, nil
	}
	defer r.opt.Modes.Leave()
	err = r.localAsNonOwner(ctx, op, res, true)
	return !errors.Is(err, syncer.ErrNotOwner), err
}

// message is reusable memory for forwarding one operation.
type message struct {
	tasks [1]rpc.Task
	res   [1]syncer.Result
}

// send asks a node, and then the one that it names instead. If the second one can't be reached,
// that says nothing about the first.
func (r *Router) send(ctx context.Context, to *ring.Member, m *message) error {
	r.opt.Peers.Do(ctx, to, m.tasks[:], m.res[:])
	err := m.res[0].Err
	var moved *rpc.MovedError
	if errors.As(err, &moved) && moved.To.Name != r.opt.Self() {
		r.opt.Peers.Do(ctx, &moved.To, m.tasks[:], m.res[:])
		if err = m.res[0].Err; errors.Is(err, rpc.ErrUnreachable) {
			err = syncer.ErrNotOwner
		}
	}
	if err == nil {
		answeredByOwner(&m.res[0])
	}
	m.res[0].Err = nil
	return err
}

// answeredByOwner sets the source of an answer that another node gave.
func answeredByOwner(res *syncer.Result) {
	if res.Source == syncer.SourceMemory {
		res.Source = syncer.SourceOwner
	}
}

// several runs an acquire whose keys have several owners.
func (r *Router) several(
	ctx context.Context, parts []multiowner.Part, op *syncer.Op, res *syncer.Result,
) error {
	err := r.opt.Acquirer.Acquire(ctx, op, res, parts)
	if err == nil && !res.Allowed && op.CountDenied {
		return r.countDenied(ctx, op)
	}
	return err
}

// countDenied counts what was refused, as the operation asks for.
func (r *Router) countDenied(ctx context.Context, op *syncer.Op) error {
	for i := range op.Checks {
		c := op.Checks[i]
		c.Limits = nil
		add := syncer.Op{Kind: syncer.Add, TS: op.TS, Ack: op.Ack, Checks: []syncer.Check{c}}
		var res syncer.Result
		if err := r.Do(ctx, &add, &res); err != nil {
			return fmt.Errorf("%w: not all of it was counted: %v", syncer.ErrUnknownOutcome, err)
		}
	}
	return nil
}

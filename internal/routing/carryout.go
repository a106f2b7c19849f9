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

// local carries out an operation in this node's memory. A new key that there is no memory for is
// served from Redis.
func (r *Router) local(ctx context.Context, op *syncer.Op, res *syncer.Result) error {
	err := r.opt.Counter.Do(ctx, op, res)
	if err != nil && r.servesFromRedis(op, err) {
		err = r.opt.Direct.Do(ctx, op, res)
	}
	r.opt.Mark(res)
	return err
}

// servesFromRedis reports whether an operation that memory has no room for can be carried out in
// Redis: it is about one key, that is not in memory, and Redis is up. If it is not, being told at
// once is better than to wait for nothing.
func (r *Router) servesFromRedis(op *syncer.Op, err error) bool {
	return r.opt.Direct != nil && len(op.Checks) == 1 && errors.Is(err, syncer.ErrFull) &&
		r.opt.StoreUp()
}

// redis carries out an operation in Redis.
func (r *Router) redis(ctx context.Context, op *syncer.Op, res *syncer.Result) error {
	err := r.opt.Modes.During(ctx, modes.Redis, func() error {
		return r.opt.Direct.Do(ctx, op, res)
	})
	r.opt.Mark(res)
	return err
}

// fallback counts in place of owners that can't be reached: what this node counts and what the
// others count meet in the store, within three flush intervals.
func (r *Router) fallback(ctx context.Context, op *syncer.Op, res *syncer.Result) error {
	if ctx.Err() != nil {
		return errExpired
	}
	err := r.opt.Modes.During(ctx, modes.TwoTier, func() error {
		return r.foreign(ctx, op, res, false)
	})
	if errors.Is(err, syncer.ErrNotOwner) {
		return errMoving
	}
	return err
}

// foreign carries out an operation in this node's memory on keys of another one, in its place or
// beside it.
func (r *Router) foreign(
	ctx context.Context, op *syncer.Op, res *syncer.Result, beside bool,
) error {
	own := *op
	own.AllowNonOwner, own.RequireStore = true, beside
	err := r.opt.Counter.Do(ctx, &own, res)
	r.opt.Mark(res)
	return err
}

// forward has the owner of all keys of an operation carry it out, if this node can't answer for it.
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

// shortcut carries out an operation on a key of another node, and reports true, if this one has a
// lease of the key and the store is there to meet the others in, or remembers that it is refused.
func (r *Router) shortcut(
	ctx context.Context, owner *ring.Member, op *syncer.Op, res *syncer.Result,
) (done bool, err error) {
	if op.Checks[0].N < 0 {
		// Now, before what follows in the same batch is compared with a refusal.
		r.opt.Refusals.Forget(&op.Checks[0])
	}
	if !r.opt.Leases.Leased(op, owner) {
		return r.opt.Refusals.Refuse(op, res), nil
	}
	if !r.opt.Modes.Enter(modes.TwoTier) {
		return false, nil
	}
	defer r.opt.Modes.Leave()
	err = r.foreign(ctx, op, res, true)
	return !errors.Is(err, syncer.ErrNotOwner), err
}

// message is memory for having another node carry out one operation.
type message struct {
	tasks [1]rpc.Task
	res   [1]syncer.Result
}

// send asks a node, and then the one that it names instead. That the second can't be reached says
// nothing of the first.
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

// answeredByOwner says where an answer came from that another node gave.
func answeredByOwner(res *syncer.Result) {
	if res.Source == syncer.SourceMemory {
		res.Source = syncer.SourceOwner
	}
}

// several carries out an acquire whose keys several nodes decide about.
func (r *Router) several(
	ctx context.Context, parts []multiowner.Part, op *syncer.Op, res *syncer.Result,
) error {
	err := r.opt.Acquirer.Acquire(ctx, op, res, parts)
	if err == nil && !res.Allowed && op.CountDenied {
		return r.countDenied(ctx, op)
	}
	return err
}

// countDenied counts all the same what was refused.
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

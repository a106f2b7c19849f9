package routing

import (
	"context"
	"errors"

	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// forward sends an operation to the owner of all its keys, unless this node remembers that the
// owner refuses it.
func (r *Router) forward(
	ctx context.Context, to *ring.Member, op *syncer.Op, res *syncer.Result,
) error {
	if r.refused(op, res) {
		return nil
	}
	m := r.messages.Get().(*message)
	defer r.messages.Put(m)
	m.tasks[0], m.ops[0] = rpc.Task{Op: *op}, *op
	r.opt.Loans.Observe(m.ops[:])
	m.res[0], *res = *res, m.res[0] // so that the memory of res is used
	err := r.send(ctx, to, m)
	m.res[0], *res = *res, m.res[0]
	m.tasks[0], m.ops[0] = rpc.Task{}, syncer.Op{}
	if err == nil {
		r.opt.Refusals.Note(op, res)
	}
	return err
}

// refused answers an operation if this node remembers that the owner refuses it.
func (r *Router) refused(op *syncer.Op, res *syncer.Result) bool {
	if op.Checks[0].N < 0 {
		// Forget now, before later operations of the same batch are compared with a refusal.
		r.opt.Refusals.Forget(&op.Checks[0])
	}
	return r.opt.Refusals.Refuse(op, res)
}

// message is reusable memory for forwarding one operation.
type message struct {
	tasks [1]rpc.Task
	ops   [1]syncer.Op
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

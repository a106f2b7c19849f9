package routing

import (
	"context"
	"errors"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

// forward sends an operation to the owner of all its keys, unless this node remembers a refusal by
// that owner.
func (r *Router) forward(
	ctx context.Context, to *ring.Member, op *twotier.Op, res *twotier.Result,
) error {
	if r.answerFromRefusal(op, res) {
		return nil
	}
	m := r.messages.Get().(*message)
	defer r.messages.Put(m)
	m.tasks[0], m.ops[0] = rpc.Task{Op: *op}, *op
	r.opt.Loans.Sample(m.ops[:])
	m.res[0], *res = *res, m.res[0] // to reuse the memory of res
	err := r.send(ctx, to, m)
	m.res[0], *res = *res, m.res[0]
	m.tasks[0], m.ops[0] = rpc.Task{}, twotier.Op{}
	if err == nil {
		r.opt.Refusals.Record(op, res)
	}
	return err
}

// answerFromRefusal answers an operation from a remembered refusal and reports whether it did.
func (r *Router) answerFromRefusal(op *twotier.Op, res *twotier.Result) bool {
	if op.TakesBack() {
		// Forget now, before later operations of the same batch are compared with a refusal.
		r.opt.Refusals.Forget(&op.Checks[0])
	}
	return r.opt.Refusals.Refuse(op, res)
}

// message is reusable memory for forwarding one operation.
type message struct {
	tasks [1]rpc.Task
	ops   [1]twotier.Op
	res   [1]twotier.Result
}

// send asks a node, and then the owner that its reply names. A failure to reach the second node is
// returned as twotier.ErrNotOwner, because it is no evidence that the first one is unreachable.
func (r *Router) send(ctx context.Context, to *ring.Member, m *message) error {
	r.opt.Peers.Do(ctx, to, m.tasks[:], m.res[:])
	err := m.res[0].Err
	var moved *rpc.MovedError
	if errors.As(err, &moved) && moved.To.Name != r.opt.Self() {
		r.opt.Peers.Do(ctx, &moved.To, m.tasks[:], m.res[:])
		if err = m.res[0].Err; errors.Is(err, rpc.ErrUnreachable) {
			err = twotier.ErrNotOwner
		}
	}
	if err == nil {
		setOwnerSource(&m.res[0])
	}
	m.res[0].Err = nil
	return err
}

// setOwnerSource sets the source of another node's answer.
func setOwnerSource(res *twotier.Result) {
	if res.Source == twotier.SourceMemory {
		res.Source = twotier.SourceOwner
	}
}

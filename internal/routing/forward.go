package routing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/retry"
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

var (
	// errExpired means that the request timed out and nothing was counted.
	errExpired = fmt.Errorf("%w: the time for it is up", twotier.ErrUnavailable)
	// errMoving means that the key kept changing hands and nothing was counted.
	errMoving = fmt.Errorf("%w: the key is being handed over", twotier.ErrUnavailable)
	// errNoOwner means that no reachable node claims to own the key.
	errNoOwner = fmt.Errorf("%w: no node that can be reached says that it owns the key",
		twotier.ErrUnavailable)
)

// retry makes a new decision and runs the operation by it, for as long as the error shows that the
// last decision was wrong. An operation on values alone is repeated once after an unknown outcome:
// what was added is known then. Only its success makes up for that outcome.
func (r *Router) retry(
	ctx context.Context, d decision, err error, op *twotier.Op, res *twotier.Result,
) error {
	var search *retry.Backoff
	var unknown error // the outcome of the attempt that was repeated
	for err != nil {
		repeat := unknown == nil && d.to == forward && !op.Reads() && isIdempotent(op) &&
			errors.Is(err, twotier.ErrUnknownOutcome)
		if repeat {
			unknown = err
		}
		fallen, replaced := r.fallbackDecision(&d, op, err)
		switch {
		case errors.Is(err, modes.ErrChanged) && ctx.Err() != nil:
			return cmp.Or(unknown, errExpired)
		case errors.Is(err, modes.ErrChanged):
			r.Refresh() // a stale view would lead to the same error again
			d, search = r.decideByTable(op, true), nil
		case replaced:
			d = fallen
		case repeat || d.isOutdated(op, err):
			if search == nil {
				search = retry.Within(ownership.WaitTimeout)
			}
			if d, err = r.decideByOwners(ctx, search, op); err != nil {
				return cmp.Or(unknown, err)
			}
		default:
			return cmp.Or(unknown, err)
		}
		err = r.execute(ctx, &d, op, res)
	}
	return nil
}

// isOutdated reports whether an error calls for a new decision: nothing was executed, or nothing
// that must not be executed twice.
func (d *decision) isOutdated(op *twotier.Op, err error) bool {
	return errors.Is(err, twotier.ErrNotOwner) || errors.Is(err, rpc.ErrUnreachable) ||
		d.to == forward && op.Reads() && errors.Is(err, twotier.ErrUnknownOutcome)
}

// isIdempotent reports whether an operation changes nothing if it is repeated: it has only values.
func isIdempotent(op *twotier.Op) bool {
	return !slices.ContainsFunc(op.Checks, func(c twotier.Check) bool { return !c.IsValues() })
}

// decideByOwners decides by the current owners of the keys. It waits for partitions that are on
// their way to this node, and pauses before each attempt after the first: nodes that disagree for a
// moment could otherwise send an operation back and forth.
func (r *Router) decideByOwners(
	ctx context.Context, search *retry.Backoff, op *twotier.Op,
) (d decision, err error) {
	if !search.Next(ctx) {
		return d, errNoOwner
	}
	var parts []multiowner.Part
	for i := range op.Checks {
		to, err := r.opt.Owners.Locate(ctx, r.partition(&op.Checks[i]))
		if errors.Is(err, ownership.ErrInRedis) {
			return decision{to: redis}, nil
		} else if err != nil {
			return d, err
		}
		parts = addPart(parts, to, i)
	}
	switch {
	case len(parts) > 1:
		return decision{to: several, parts: parts}, nil
	case parts[0].To == nil:
		return decision{to: memoryDestination(op)}, nil
	}
	return decision{to: forward, owner: parts[0].To}, nil
}

// fallbackDecision turns the error of the last attempt into a fallback decision, for an operation
// some of whose owners can't be reached. It reports false if the unreachable members do not own the
// keys, or if no member is unreachable: counting in place of a node that is merely slow would let
// two nodes decide, so only rpc.ErrUnreachable is a reason.
func (r *Router) fallbackDecision(
	d *decision, op *twotier.Op, err error,
) (fallen decision, ok bool) {
	var gone []multiowner.Part
	switch u, several := errors.AsType[*multiowner.UnreachableError](err); {
	case several:
		gone = u.Parts
	case d.to == forward && errors.Is(err, rpc.ErrUnreachable):
		for i := range op.Checks {
			gone = addPart(gone, d.owner, i)
		}
	default:
		return fallen, false
	}
	fallen = decision{to: fallback, inPlace: slices.Clone(d.inPlace)}
	for _, p := range gone {
		if !r.ownsChecks(p.To, op, p.Checks) {
			return fallen, false
		}
		fallen.inPlace = append(fallen.inPlace, p.Checks...)
	}
	for _, p := range d.parts {
		for _, i := range p.Checks {
			if slices.Contains(fallen.inPlace, i) {
				fallen.parts = addPart(fallen.parts, nil, i)
			} else {
				fallen.parts = addPart(fallen.parts, p.To, i)
			}
		}
	}
	for _, p := range fallen.parts {
		if p.To != nil && d.to != fallback { // the last attempt has taken the detours
			fallen.detours = append(fallen.detours, p.To)
		}
	}
	return fallen, true
}

// ownsChecks reports whether, in this node's view, a member owns the keys of the given checks.
func (r *Router) ownsChecks(m *ring.Member, op *twotier.Op, checks []int) bool {
	return !slices.ContainsFunc(checks, func(i int) bool {
		return !r.opt.Owners.DecidedBy(m, r.partition(&op.Checks[i]))
	})
}

// fallback runs an operation some of whose owners can't be reached from this node. It first tries
// the other owners, one of which may reach all of them, as when the network is cut in one
// direction. If none does, this node counts in place of the unreachable owners only; the other
// owners decide about their own keys. Concurrent counts of this node and an owner meet in the store
// within three flush intervals.
func (r *Router) fallback(
	ctx context.Context, d decision, op *twotier.Op, res *twotier.Result,
) error {
	for _, to := range d.detours {
		err := r.relayAcquire(ctx, to, op, res)
		if !errors.Is(err, twotier.ErrNotOwner) && !errors.Is(err, rpc.ErrUnreachable) {
			return err
		}
	}
	if ctx.Err() != nil {
		return errExpired
	}
	err := r.opt.Modes.During(ctx, modes.TwoTier, func() error {
		return r.runAsSubstitute(ctx, &d, op, res)
	})
	if errors.Is(err, twotier.ErrNotOwner) && len(d.inPlace) == len(op.Checks) {
		return errMoving
	}
	if err == nil && len(d.parts) > 1 {
		return r.countIfDenied(ctx, op, res, nil)
	}
	return err
}

// runAsSubstitute runs an operation on this node, in place of unreachable owners where necessary,
// together with the owners that can be reached.
func (r *Router) runAsSubstitute(
	ctx context.Context, d *decision, op *twotier.Op, res *twotier.Result,
) error {
	nonOwner := *op
	if nonOwner.AllowNonOwner = len(d.inPlace) == len(op.Checks); !nonOwner.AllowNonOwner {
		nonOwner.Checks = slices.Clone(op.Checks)
		for _, i := range d.inPlace {
			nonOwner.Checks[i].InPlace = true
		}
	}
	if len(d.parts) > 1 {
		r.opt.Acquirer.Acquire(ctx,
			[]multiowner.Request{{Op: &nonOwner, Res: res, Parts: d.parts}})
		err := res.Err
		res.Err = nil
		return err
	}
	nonOwner.Recalled = false // other nodes may have counts of the keys
	err := r.opt.Counter.Do(ctx, &nonOwner, res)
	r.markUntrustedTime(res)
	return err
}

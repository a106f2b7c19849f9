package routing

import (
	"context"
	"errors"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

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
	for _, i := range checks {
		if !r.opt.Owners.DecidedBy(m, r.partition(&op.Checks[i])) {
			return false
		}
	}
	return true
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

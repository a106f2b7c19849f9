package routing

import (
	"context"
	"errors"
	"fmt"

	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// destination is where an operation goes.
type destination uint8

// The destinations, see the package's documentation.
const (
	local destination = iota
	forward
	several
	fallback
	redis
)

// decision is where an operation goes, and to whom.
type decision struct {
	to    destination
	owner *ring.Member      // of forward
	parts []multiowner.Part // of several
}

var (
	// errExpired says that nothing was counted because the request timed out.
	errExpired = fmt.Errorf("%w: the time for it is up", syncer.ErrUnavailable)
	// errMoving says that nothing was counted because the key kept changing hands.
	errMoving = fmt.Errorf("%w: the key is just changing hands", syncer.ErrUnavailable)
	// errNoOwner says that no node was found that decides.
	errNoOwner = fmt.Errorf("%w: nobody who can be reached says that it decides about the key",
		syncer.ErrUnavailable)
)

// Do runs one operation. Its errors are those of syncer.Counter.Do, except syncer.ErrNotOwner.
func (r *Router) Do(ctx context.Context, op *syncer.Op, res *syncer.Result) error {
	if ctx.Err() != nil {
		return errExpired
	}
	d := r.byTable(op)
	if err := r.carryOut(ctx, &d, op, res); err != nil {
		return r.retry(ctx, d, err, op, res)
	}
	return nil
}

// retry decides anew for as long as the error shows that the last decision was wrong, and runs the
// operation there.
func (r *Router) retry(
	ctx context.Context, d decision, err error, op *syncer.Op, res *syncer.Result,
) error {
	var search *retry.Backoff
	for err != nil {
		switch {
		case errors.Is(err, modes.ErrChanged) && ctx.Err() != nil:
			return errExpired
		case errors.Is(err, modes.ErrChanged):
			d, search = r.byTable(op), nil
		case r.needsFallback(&d, op, err):
			d = decision{to: fallback}
		case d.outdated(op, err):
			if search == nil {
				search = retry.Within(ownership.WaitTimeout)
			}
			if d, err = r.locate(ctx, search, op); err != nil {
				return err
			}
		default:
			return err
		}
		err = r.carryOut(ctx, &d, op, res)
	}
	return nil
}

// carryOut runs an operation where it was decided.
func (r *Router) carryOut(
	ctx context.Context, d *decision, op *syncer.Op, res *syncer.Result,
) error {
	switch d.to {
	case local:
		return r.local(ctx, op, res)
	case forward:
		return r.forward(ctx, d.owner, op, res)
	case several:
		return r.several(ctx, d.parts, op, res)
	case fallback:
		return r.fallback(ctx, op, res)
	default:
		return r.redis(ctx, op, res)
	}
}

// outdated reports whether an error calls for a new decision: nothing was executed, or nothing
// that must not be executed twice.
func (d *decision) outdated(op *syncer.Op, err error) bool {
	return errors.Is(err, syncer.ErrNotOwner) || errors.Is(err, rpc.ErrUnreachable) ||
		d.to == forward && op.Kind == syncer.Count && errors.Is(err, syncer.ErrUnknownOutcome)
}

// needsFallback reports whether the nodes that decide about the keys can't be reached; it does not
// matter whether others can. Counting in place of a node that is merely slow would mean that two
// nodes decide, so only ErrUnreachable is a reason.
func (r *Router) needsFallback(d *decision, op *syncer.Op, err error) bool {
	var parts []multiowner.Part
	switch u, ok := errors.AsType[*multiowner.UnreachableError](err); {
	case ok:
		parts = u.Parts
	case d.to == forward && errors.Is(err, rpc.ErrUnreachable):
		for i := range op.Checks {
			parts = addPart(parts, d.owner, i)
		}
	default:
		return false
	}
	for _, p := range parts {
		if !r.decidedBy(p.To, op, p.Checks) {
			return false
		}
	}
	return true
}

// decidedBy reports whether a member decides about the keys of some checks, as far as this node
// knows.
func (r *Router) decidedBy(m *ring.Member, op *syncer.Op, checks []int) bool {
	for _, i := range checks {
		if !r.opt.Owners.DecidedBy(m, r.partition(&op.Checks[i])) {
			return false
		}
	}
	return true
}

// byTable decides by the mode and the ring's table, without waiting.
func (r *Router) byTable(op *syncer.Op) decision {
	if r.opt.Modes.InRedis() {
		return decision{to: redis}
	}
	t := r.opt.Table()
	at, one := r.ownerOf(t, op)
	switch {
	case one && at == t.Self():
		return decision{to: local}
	case one:
		return decision{to: forward, owner: t.Member(at)}
	}
	var parts []multiowner.Part
	for i := range op.Checks {
		to := t.Member(t.Owner(r.partition(&op.Checks[i])))
		if t.OwnedBySelf(r.partition(&op.Checks[i])) {
			to = nil
		}
		parts = addPart(parts, to, i)
	}
	return decision{to: several, parts: parts}
}

// ownerOf returns the index of the member that owns all keys of an operation according to the
// table.
func (r *Router) ownerOf(t *ring.Table, op *syncer.Op) (at int, one bool) {
	at = t.Owner(r.partition(&op.Checks[0]))
	for i := 1; i < len(op.Checks); i++ {
		if t.Owner(r.partition(&op.Checks[i])) != at {
			return 0, false
		}
	}
	return at, true
}

// locate decides by who decides about the keys at this moment. It waits for partitions that are on
// their way to this node, and briefly before each attempt after the first: nodes that disagree for
// a moment could otherwise send an operation back and forth.
func (r *Router) locate(
	ctx context.Context, search *retry.Backoff, op *syncer.Op,
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
		return decision{to: local}, nil
	}
	return decision{to: forward, owner: parts[0].To}, nil
}

// addPart adds a check to the part of a node, nil for this one.
func addPart(parts []multiowner.Part, to *ring.Member, check int) []multiowner.Part {
	for i := range parts {
		if o := parts[i].To; o == to || o != nil && to != nil && o.Name == to.Name {
			parts[i].Checks = append(parts[i].Checks, check)
			return parts
		}
	}
	return append(parts, multiowner.Part{To: to, Checks: []int{check}})
}

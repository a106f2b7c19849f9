package multiowner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// Part is the part of an operation that one node decides about.
type Part struct {
	// To is the node, or nil for this one.
	To *ring.Member
	// Checks are indexes into the operation's checks.
	Checks []int
}

// UnreachableError says that some owners could not be reached, and nothing was counted. It is an
// rpc.ErrUnreachable.
type UnreachableError struct{ Parts []Part }

// Error names the first of the owners.
func (e *UnreachableError) Error() string {
	return fmt.Sprintf("%v: %s", rpc.ErrUnreachable, e.Parts[0].To.ID)
}

// Unwrap returns rpc.ErrUnreachable.
func (e *UnreachableError) Unwrap() error { return rpc.ErrUnreachable }

// Acquirer runs acquires over several owners.
type Acquirer struct {
	opt   Options
	local *Participant
}

// NewAcquirer returns an acquirer on the node of a participant.
func NewAcquirer(local *Participant) *Acquirer { return &Acquirer{opt: local.opt, local: local} }

// Acquire runs an acquire whose checks are divided among several owners, all or nothing. A refused
// acquire is not counted, even if op.CountDenied is set: the caller has to do that.
//
// The error is an *[UnreachableError], an *syncer.InvalidError that names the check by its index in
// op, or wraps syncer.ErrNotOwner: in these cases nothing was counted, and other nodes may decide.
// After syncer.ErrUnknownOutcome it may have been counted.
func (q *Acquirer) Acquire(
	ctx context.Context, op *syncer.Op, res *syncer.Result, parts []Part,
) error {
	a := &acquire{Acquirer: q, op: op, id: rand.Text(), parts: make([]part, len(parts))}
	for i := range parts {
		a.parts[i].Part = parts[i]
		if parts[i].To == nil {
			// The coordinator is this node if it owns a part, because that needs no message.
			a.parts[i], a.parts[0] = a.parts[0], a.parts[i]
		}
	}
	errs := a.reserve(ctx)
	if err := errors.Join(errs...); err != nil {
		a.undo()
		return a.unreserved(errs)
	}
	if a.allowed() {
		if err := a.confirm(ctx); err != nil {
			return err
		}
	} else {
		a.undo()
	}
	a.merge(res)
	return nil
}

// acquire is an acquire in progress.
type acquire struct {
	*Acquirer
	op    *syncer.Op
	id    string
	parts []part // the coordinator's part first
}

// part is one node's part of an acquire.
type part struct {
	Part
	res syncer.Result
}

// unreserved returns the error of an acquire that some owner could not decide about.
func (a *acquire) unreserved(errs []error) error {
	err := errors.Join(errs...)
	invalid, refused := errors.AsType[*syncer.InvalidError](err)
	switch {
	case refused: // any other node would refuse it too
		return invalid
	case errors.Is(err, syncer.ErrNotOwner), errors.Is(err, syncer.ErrUnknownOutcome):
		return syncer.ErrNotOwner
	case !errors.Is(err, rpc.ErrUnreachable):
		return err
	}
	unreachable := new(UnreachableError)
	for i, err := range errs {
		if errors.Is(err, rpc.ErrUnreachable) {
			unreachable.Parts = append(unreachable.Parts, a.parts[i].Part)
		}
	}
	return unreachable
}

// coordinator returns the name of the member that records the outcome.
func (a *acquire) coordinator() string {
	if to := a.parts[0].To; to != nil {
		return to.Name
	}
	return a.opt.Self()
}

// each runs a task on all nodes, concurrently.
func (a *acquire) each(ctx context.Context, task func(p *part) rpc.Task) []error {
	errs := make([]error, len(a.parts))
	var done sync.WaitGroup
	for i := range a.parts {
		done.Go(func() { errs[i] = a.ask(ctx, &a.parts[i], task(&a.parts[i])) })
	}
	done.Wait()
	return errs
}

// ask runs a task on one node.
func (a *acquire) ask(ctx context.Context, p *part, task rpc.Task) error {
	if p.To == nil {
		return p.named(a.local.Serve(ctx, &task, &p.res))
	}
	var res [1]syncer.Result
	a.opt.Peers.Do(ctx, p.To, []rpc.Task{task}, res[:])
	if task.Verb == rpc.VerbReserve {
		p.res = res[0]
	}
	return p.named(res[0].Err)
}

// named makes an error name a check by its index in the whole operation. The error of a part with a
// single check only names its limit.
func (p *part) named(err error) error {
	invalid, ok := errors.AsType[*syncer.InvalidError](err)
	if !ok {
		return err
	}
	at := invalid.Check
	if invalid.Limit >= 0 && len(p.Checks) == 1 {
		at = 0
	}
	if at < 0 || at >= len(p.Checks) {
		return err
	}
	named := *invalid
	named.Check = p.Checks[at]
	return &named
}

func (a *acquire) reserve(ctx context.Context) []error {
	return a.each(ctx, func(p *part) rpc.Task {
		op := *a.op
		op.Checks = make([]syncer.Check, len(p.Checks))
		for k, i := range p.Checks {
			op.Checks[k] = a.op.Checks[i]
		}
		return rpc.Task{
			Verb: rpc.VerbReserve, Op: op, Reservation: a.id, Coordinator: a.coordinator(),
		}
	})
}

func (a *acquire) allowed() bool {
	for i := range a.parts {
		if !a.parts[i].res.Allowed {
			return false
		}
	}
	return true
}

// undo tells all owners, in the background, to undo their reservations. An owner that is not
// reached asks the coordinator when the reservation is overdue.
func (a *acquire) undo() {
	a.opt.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, reserveTime)
		defer cancel()
		_ = a.each(ctx, func(*part) rpc.Task {
			return rpc.Task{Verb: rpc.VerbUndo, Reservation: a.id}
		})
	})
}

// confirm makes all owners count what they reserved. Once the coordinator has done so, the acquire
// has happened: owners that can't be reached find out by asking it.
func (a *acquire) confirm(ctx context.Context) error {
	task := a.confirmation(a.op.Ack)
	if err := a.ask(ctx, &a.parts[0], task); err != nil {
		if errors.Is(err, syncer.ErrUnknownOutcome) {
			a.opt.Go(a.announce)
			return err
		}
		a.undo()
		return fmt.Errorf("%w: a reservation was lost on the way: %v", syncer.ErrUnavailable, err)
	}
	if err := a.insist(ctx, task); err != nil {
		a.opt.Go(a.announce)
		return fmt.Errorf("%w: counted, but not every node could be told: %v",
			syncer.ErrUnknownOutcome, err)
	}
	if a.parts[0].To == nil {
		a.local.reservations.settled(a.id) // no other owner is left that could ask
	}
	return nil
}

func (a *acquire) confirmation(ack syncer.Ack) rpc.Task {
	return rpc.Task{
		Verb: rpc.VerbConfirm, Reservation: a.id, Coordinator: a.coordinator(),
		Op: syncer.Op{Ack: ack},
	}
}

// announce tells all owners what the coordinator decided, if that became known only after the
// operation's deadline or not all owners could be told before it. They would ask the coordinator
// themselves after a while, but it may have left by then, and they would assume that it died before
// it decided.
func (a *acquire) announce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reserveLimit)
	defer cancel()
	confirmed, err := a.local.askCoordinator(ctx, a.id, a.coordinator())
	switch {
	case err == nil && confirmed:
		_ = a.insist(ctx, a.confirmation(syncer.AckMemory)) // owners that are not reached will ask
	case err == nil:
		a.undo()
	}
}

// insistPause is the wait before a node that could not be reached is told again.
const insistPause = 20 * time.Millisecond

// insist runs a task on all nodes except the coordinator, and retries those that can't be reached
// for as long as there is time.
func (a *acquire) insist(ctx context.Context, task rpc.Task) error {
	errs := make([]error, len(a.parts))
	var done sync.WaitGroup
	for i := 1; i < len(a.parts); i++ {
		done.Go(func() {
			for {
				errs[i] = a.ask(ctx, &a.parts[i], task)
				if !errors.Is(errs[i], rpc.ErrUnreachable) || ctx.Err() != nil {
					return
				}
				retry.Pause(ctx, insistPause)
			}
		})
	}
	done.Wait()
	return errors.Join(errs...)
}

package node

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"twotier/internal/retry"
	"twotier/internal/rpc"
	"twotier/syncer"
)

// across carries out an Acquire whose keys several nodes decide about, all or nothing, in two steps. First each decides its part and
// holds the place of what it admits. If all do, they are told to count it, the first of them before the others: whether that one did
// decides whether the Acquire happened. If this node dies in between, each of the others asks the first one. Reservations stand in
// the way of other decisions: those can be refused because of one that is given up in the end, but never one too many is let through.
func (n *Node) across(ctx context.Context, op *Op, res *Result, shares []share) error {
	a := &crossing{n: n, op: op, id: rand.Text(), parts: make([]part, len(shares))}
	for i := range shares {
		a.parts[i].share = shares[i]
		if shares[i].to == nil {
			a.parts[i], a.parts[0] = a.parts[0], a.parts[i] // the one that can be told without a message decides
		}
	}
	errs := a.reserve(ctx)
	err := errors.Join(errs...)
	if err != nil || !a.allowed() {
		a.undo()
	}
	switch {
	case err != nil:
		return a.unreserved(ctx, res, errs)
	case a.allowed():
		if err := a.confirm(ctx); err != nil {
			return err
		}
	case op.CountDenied:
		if err := a.countDenied(ctx); err != nil {
			return err
		}
	}
	a.merge(res)
	return nil
}

// unreserved decides what becomes of an operation that could not be decided by all: nothing of it is counted. This node stands in for
// those that can't be reached; after other failures that may pass it is to be looked at again who decides.
func (a *crossing) unreserved(ctx context.Context, res *Result, errs []error) error {
	err := errors.Join(errs...)
	invalid, refused := errors.AsType[*syncer.InvalidError](err)
	switch {
	case refused: // whoever else is asked
		return invalid
	case errors.Is(err, syncer.ErrElsewhere), errors.Is(err, syncer.ErrUnknownOutcome):
		return syncer.ErrElsewhere
	case !errors.Is(err, rpc.ErrUnreachable):
		return err
	}
	for i, err := range errs {
		if errors.Is(err, rpc.ErrUnreachable) && !a.decides(&a.parts[i]) {
			return syncer.ErrElsewhere
		}
	}
	return a.n.standIn(ctx, a.op, res)
}

// decides reports whether a part is with the member that decides about its keys.
func (a *crossing) decides(p *part) bool {
	for _, i := range p.checks {
		if !a.n.owned.DecidedBy(p.to, a.n.partition(&a.op.Checks[i])) {
			return false
		}
	}
	return true
}

// crossing is an Acquire on its way through several nodes.
type crossing struct {
	n     *Node
	op    *Op
	id    string
	parts []part
}

// part is one node's part of it.
type part struct {
	share
	res Result
}

// decider is the name of the member whose part decides.
func (a *crossing) decider() string {
	if to := a.parts[0].to; to != nil {
		return to.Name
	}
	return a.n.self().Name
}

// each has all nodes carry out a task at the same time.
func (a *crossing) each(ctx context.Context, task func(p *part) rpc.Task) []error {
	errs := make([]error, len(a.parts))
	var done sync.WaitGroup
	for i := range a.parts {
		done.Go(func() { errs[i] = a.ask(ctx, &a.parts[i], task(&a.parts[i])) })
	}
	done.Wait()
	return errs
}

// ask has one node carry out a task.
func (a *crossing) ask(ctx context.Context, p *part, task rpc.Task) error {
	if p.to == nil {
		return p.named(a.n.serveOther(ctx, &task, &p.res))
	}
	var res [1]Result
	a.n.opt.Peers.Do(ctx, p.to, []rpc.Task{task}, res[:])
	if task.Verb == rpc.VerbReserve {
		p.res = res[0]
	}
	return p.named(res[0].Err)
}

// named has an error name a check by its position in the whole operation. The error of a part with
// a single check names its limit only.
func (p *part) named(err error) error {
	invalid, ok := errors.AsType[*syncer.InvalidError](err)
	if !ok {
		return err
	}
	at := invalid.Check
	if invalid.Limit >= 0 && len(p.checks) == 1 {
		at = 0
	}
	if at < 0 || at >= len(p.checks) {
		return err
	}
	named := *invalid
	named.Check = p.checks[at]
	return &named
}

func (a *crossing) reserve(ctx context.Context) []error {
	return a.each(ctx, func(p *part) rpc.Task {
		op := *a.op
		op.Checks = make([]Check, len(p.checks))
		for k, i := range p.checks {
			op.Checks[k] = a.op.Checks[i]
		}
		return rpc.Task{Verb: rpc.VerbReserve, Op: op, Reservation: a.id, Coordinator: a.decider()}
	})
}

func (a *crossing) allowed() bool {
	for i := range a.parts {
		if !a.parts[i].res.Allowed {
			return false
		}
	}
	return true
}

// undo tells all to give their reservations up. Who doesn't hear it finds out when its time is up.
func (a *crossing) undo() {
	a.n.spawn(func() {
		ctx, cancel := context.WithTimeout(a.n.run, holdTime)
		defer cancel()
		_ = a.each(ctx, func(*part) rpc.Task { return rpc.Task{Verb: rpc.VerbUndo, Reservation: a.id} })
	})
}

// confirm has all count what they reserved. Once the first has, it happened: the others find out if they can't be told.
func (a *crossing) confirm(ctx context.Context) error {
	task := a.confirmation(a.op.Ack)
	if err := a.ask(ctx, &a.parts[0], task); err != nil {
		if errors.Is(err, syncer.ErrUnknownOutcome) {
			a.n.spawn(a.follow)
			return err
		}
		a.undo()
		return fmt.Errorf("%w: a reservation was lost on the way: %v", syncer.ErrUnavailable, err)
	}
	if err := a.insist(ctx, task); err != nil {
		a.n.spawn(a.follow)
		return fmt.Errorf("%w: counted, but not every node could be told: %v", syncer.ErrUnknownOutcome, err)
	}
	if a.parts[0].to == nil {
		a.n.holds.settled(a.id) // nobody has a part of it left to ask about
	}
	return nil
}

func (a *crossing) confirmation(ack Ack) rpc.Task {
	return rpc.Task{Verb: rpc.VerbConfirm, Reservation: a.id, Coordinator: a.decider(), Op: Op{Ack: ack}}
}

// follow tells all what the first decided, after the time of the operation or without knowing it so
// far. They ask the first themselves after a while, but it may have left by then, and would be
// taken for one that died before it decided.
func (a *crossing) follow() {
	ctx, cancel := context.WithTimeout(a.n.run, holdLimit)
	defer cancel()
	confirmed, err := a.n.askDecider(ctx, a.id, a.decider())
	switch {
	case err == nil && confirmed:
		_ = a.insist(ctx, a.confirmation(syncer.AckMemory)) // whoever is not reached asks
	case err == nil:
		a.undo()
	}
}

// insist has all nodes but the first carry out a task, and tells those that can't be reached again for as long as there is time.
func (a *crossing) insist(ctx context.Context, task rpc.Task) error {
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

// insistPause is the wait before a node that can't be reached is told again.
const insistPause = 20 * time.Millisecond

// countDenied counts all the same what was refused.
func (a *crossing) countDenied(ctx context.Context) error {
	for i := range a.op.Checks {
		c := a.op.Checks[i]
		c.Limits = nil
		op := Op{Kind: syncer.Add, TS: a.op.TS, Ack: a.op.Ack, Checks: []Check{c}}
		var res Result
		if err := a.n.do(ctx, &op, &res); err != nil {
			return fmt.Errorf("%w: not all of it was counted: %v", syncer.ErrUnknownOutcome, err)
		}
	}
	return nil
}

// merge puts the answers together, in the order of the checks.
func (a *crossing) merge(res *Result) {
	res.Reset()
	res.Allowed, res.Source = a.allowed(), syncer.SourceOwner
	for range a.op.Checks {
		res.AddCheck()
	}
	for i := range a.parts {
		p := &a.parts[i]
		for k, at := range p.checks {
			if k < len(p.res.Checks) {
				res.Checks[at] = p.res.Checks[k]
			}
		}
		res.Degraded = res.Degraded || p.res.Degraded
		if p.res.Source == syncer.SourceDegraded {
			res.Source = syncer.SourceDegraded
		}
		res.AgeMS = max(res.AgeMS, p.res.AgeMS)
		if r := p.res.RetryAfter; r < 0 || res.RetryAfter >= 0 && r > res.RetryAfter {
			res.RetryAfter = r
		}
	}
	a.settle(res)
}

// settle makes the figures of parts that were admitted by themselves show what was counted in the end.
func (a *crossing) settle(res *Result) {
	if res.Allowed || a.op.CountDenied {
		return
	}
	for i := range a.parts {
		if !a.parts[i].res.Allowed {
			continue
		}
		for _, at := range a.parts[i].checks {
			for j := range res.Checks[at].Limits {
				l := &res.Checks[at].Limits[j]
				n := a.reserved(&a.parts[i], at)
				l.Count, l.Lo, l.Hi = l.Count-n, l.Lo-n, l.Hi-n
			}
		}
	}
}

// reserved is how much a node reserved of the key of a check.
func (a *crossing) reserved(p *part, at int) (n int64) {
	name := a.op.Checks[at].AppendName(nil)
	for _, i := range p.checks {
		if o := &a.op.Checks[i]; bytes.Equal(o.AppendName(nil), name) {
			n += o.N
		}
	}
	return n
}

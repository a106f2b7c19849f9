package multiowner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

// Part is one node's part of an operation.
type Part struct {
	// To is the node, or nil for this one.
	To *ring.Member
	// Checks are indexes into the operation's checks.
	Checks []int
}

// UnreachableError reports that some owners could not be reached, and that nothing was counted. It
// wraps rpc.ErrUnreachable.
type UnreachableError struct{ Parts []Part }

// Error names the first unreachable owner.
func (e *UnreachableError) Error() string {
	return fmt.Sprintf("%v: %s", rpc.ErrUnreachable, e.Parts[0].To.ID)
}

// Unwrap returns rpc.ErrUnreachable.
func (e *UnreachableError) Unwrap() error { return rpc.ErrUnreachable }

// Acquirer runs acquires over several owners.
type Acquirer struct {
	opt     Options
	local   *Participant
	numbers numbers
}

// NewAcquirer returns an acquirer on the node of a participant. A node must have only one.
func NewAcquirer(local *Participant) *Acquirer {
	return &Acquirer{opt: local.opt, local: local, numbers: numbers{open: map[string][]numbered{}}}
}

// Request is an acquire whose checks are divided among several owners.
type Request struct {
	Op    *twotier.Op
	Res   *twotier.Result // receives the answer
	Parts []Part          // two or more, for different nodes
}

// Acquire runs acquires that have no key in common, each of them all or nothing, and sets Err in
// each result. A refused acquire is not counted, even if CountDenied or Charge is set: counting it
// is up to the caller. For a dry run, the owners only compare their parts with the limits.
//
// An error is an *[UnreachableError], an *twotier.InvalidError that names the check by its index in
// the operation, or wraps twotier.ErrNotOwner: in these cases nothing was counted, and other nodes
// may decide. After twotier.ErrUnknownOutcome the acquire may have been counted.
func (q *Acquirer) Acquire(ctx context.Context, list []Request) {
	all := make([]*acquire, len(list))
	for i := range list {
		all[i] = q.begin(&list[i])
	}
	q.reserve(ctx, all)
	q.decide(ctx, all)
	q.finish(ctx, all)
	for i, a := range all {
		if a.err == nil {
			a.merge(list[i].Res)
		} else {
			list[i].Res.Reset()
		}
		list[i].Res.Err = a.err
	}
}

// acquire is an acquire in progress.
type acquire struct {
	op      *twotier.Op
	id      rpc.AcquireID
	settled uint64 // see rpc.Task
	began   time.Time
	parts   []part // this node's part first, if it has one; the decider's last
	err     error
	inDoubt bool       // it is unknown whether the decider has counted its part
	untold  []nodeTask // to nodes that don't know the outcome
}

// part is one node's part of an acquire.
type part struct {
	Part
	res twotier.Result
}

// begin numbers an acquire and chooses its decider. The decider is another node, because confirming
// this node's reservation takes no message.
func (q *Acquirer) begin(r *Request) *acquire {
	a := &acquire{op: r.Op, began: time.Now(), parts: make([]part, len(r.Parts))}
	a.id.Coordinator = q.opt.Self()
	for i := range r.Parts {
		a.parts[i].Part = r.Parts[i]
		if r.Parts[i].To == nil {
			a.parts[i], a.parts[0] = a.parts[0], a.parts[i]
		}
	}
	a.id.Number, a.settled = q.numbers.next(a.decider().To.Name)
	return a
}

func (a *acquire) decider() *part { return &a.parts[len(a.parts)-1] }

// holders returns the parts that are reserved before the decision.
func (a *acquire) holders() []part { return a.parts[:len(a.parts)-1] }

// reserve has all owners but the deciders reserve their parts.
func (q *Acquirer) reserve(ctx context.Context, all []*acquire) {
	list := make([]nodeTask, 0, len(all))
	for _, a := range all {
		verb := rpc.VerbReserve
		if a.op.DryRun {
			verb = rpc.VerbCompare
		}
		for i := range a.holders() {
			list = append(list, a.compareTask(verb, &a.parts[i]))
		}
	}
	q.runTasks(ctx, list)
	for _, a := range all {
		a.err = a.undecidedError(a.holders())
	}
}

// decide has the deciders decide about acquires that all other owners have admitted. For acquires
// that are refused already, the deciders only compare their parts with the limits.
func (q *Acquirer) decide(ctx context.Context, all []*acquire) {
	list := make([]nodeTask, 0, len(all))
	for _, a := range all {
		if a.err != nil {
			continue
		}
		verb := rpc.VerbCompare
		if a.admitted(a.holders()) && !a.op.DryRun {
			verb = rpc.VerbDecide
		}
		list = append(list, a.compareTask(verb, a.decider()))
	}
	q.runTasks(ctx, list)
	for i := range list {
		a, err := list[i].of, list[i].err
		if list[i].task.Verb == rpc.VerbDecide && errors.Is(err, twotier.ErrUnknownOutcome) {
			a.inDoubt, a.err = true, err
		} else {
			a.err = a.undecidedError(a.parts[len(a.parts)-1:])
		}
	}
}

// compareTask returns the task to compare a part with its limits.
func (a *acquire) compareTask(verb rpc.Verb, p *part) nodeTask {
	op := *a.op
	op.CountDenied, op.Charge = false, false
	op.Checks = make([]twotier.Check, len(p.Checks))
	for k, i := range p.Checks {
		op.Checks[k] = a.op.Checks[i]
	}
	task := rpc.Task{Verb: verb, Op: op, Acquire: a.id}
	switch verb {
	case rpc.VerbReserve:
		task.Decider = a.decider().To.Name
	case rpc.VerbDecide:
		task.Settled = a.settled
	}
	return nodeTask{of: a, to: p.To, task: task, part: p}
}

// undecidedError returns the error of an acquire that some of the given owners could not decide
// about, or nil.
func (a *acquire) undecidedError(parts []part) error {
	var errs []error
	unreachable := new(UnreachableError)
	for i := range parts {
		p := &parts[i]
		if p.res.Err == nil {
			continue
		}
		errs = append(errs, p.nameCheck(p.res.Err))
		if errors.Is(p.res.Err, rpc.ErrUnreachable) {
			unreachable.Parts = append(unreachable.Parts, p.Part)
		}
	}
	err := errors.Join(errs...)
	invalid, refused := errors.AsType[*twotier.InvalidError](err)
	switch {
	case refused: // any other node would refuse it too
		return invalid
	case errors.Is(err, twotier.ErrNotOwner), errors.Is(err, twotier.ErrUnknownOutcome):
		return twotier.ErrNotOwner
	case len(unreachable.Parts) > 0:
		return unreachable
	}
	return err
}

// nameCheck makes an error name a check by its index in the whole operation. The error of a part
// with a single check names only its limit.
func (p *part) nameCheck(err error) error {
	invalid, ok := errors.AsType[*twotier.InvalidError](err)
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

// admitted reports whether the given owners have all admitted their parts.
func (a *acquire) admitted(parts []part) bool {
	return !slices.ContainsFunc(parts, func(p part) bool { return !p.res.Allowed })
}

// merge combines the parts' answers in the order of the checks.
func (a *acquire) merge(res *twotier.Result) {
	res.Reset()
	res.Allowed, res.Source = a.admitted(a.parts), twotier.SourceOwner
	for range a.op.Checks {
		res.AddCheck()
	}
	for i := range a.parts {
		p := &a.parts[i]
		for k, at := range p.Checks {
			if k < len(p.res.Checks) {
				res.Checks[at] = p.res.Checks[k]
			}
		}
		res.Degraded = res.Degraded || p.res.Degraded
		if s := p.res.Source; s == twotier.SourceDegraded ||
			s == twotier.SourceFallback && res.Source == twotier.SourceOwner {
			res.Source = s
		}
		res.AgeMS = max(res.AgeMS, p.res.AgeMS)
		if r := p.res.RetryAfter; r < 0 || res.RetryAfter >= 0 && r > res.RetryAfter {
			res.RetryAfter = r
		}
	}
	if !res.Allowed {
		a.subtract(res, a.op.CountsRefused(res))
	}
}

// subtract subtracts undone reservations from the counts in the answer, for the parts that their
// owners had admitted: all of them or, if the refusal is counted, only the leases. How many of the
// values were new is unknown, so their counts remain, and only the lower bounds leave them out.
func (a *acquire) subtract(res *twotier.Result, counted bool) {
	for i := range a.parts {
		if !a.parts[i].res.Allowed {
			continue
		}
		for _, at := range a.parts[i].Checks {
			if counted && !a.op.Checks[at].IsLease() {
				continue
			}
			n := a.reservedAmount(&a.parts[i], at)
			res.Checks[at].TS = 0
			for j := range res.Checks[at].Limits {
				l := &res.Checks[at].Limits[j]
				if a.op.Checks[at].IsValues() {
					l.Lo = max(0, l.Lo-n)
				} else {
					l.Count, l.Lo, l.Hi = l.Count-n, l.Lo-n, l.Hi-n
				}
			}
		}
	}
}

// reservedAmount returns the amount that a node reserved of a check's key.
func (a *acquire) reservedAmount(p *part, at int) (n int64) {
	name := a.op.Checks[at].AppendName(nil)
	for _, i := range p.Checks {
		if o := &a.op.Checks[i]; bytes.Equal(o.AppendName(nil), name) {
			n += o.N
		}
	}
	return n
}

package multiowner

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

// maxReservations bounds the open reservations.
const maxReservations = 1 << 16

// Counter decides parts of acquires, see syncer.Counter.
type Counter interface {
	// DoAll runs operations in order and sets Err in each result. Confirm counts the reservation of
	// such an operation at its TS. Undo gives the reservation up and reports whether there was one.
	DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result)
	Confirm(ctx context.Context, op *twotier.Op) error
	Undo(op *twotier.Op) bool
}

// Peers reaches the other nodes. Its errors are the ones of package rpc.
type Peers interface {
	// Do has another node run tasks and sets Err in each result.
	Do(ctx context.Context, to *ring.Member, tasks []rpc.Task, res []twotier.Result)
	rpc.Asker
}

// Options configure a [Participant]. All but Logger are required.
type Options struct {
	// Self returns the name of this node, Table the members.
	Self    func() string
	Table   func() *ring.Table
	Counter Counter
	Peers   Peers
	// TakeBack runs an Add of a negative count, on the owner of its key.
	TakeBack func(ctx context.Context, op *twotier.Op) error
	// InRedis reports whether the cluster counts in Redis: then no reservation is possible.
	InRedis func() bool
	// Go runs fn in the background; fn's context is done when the node closes.
	Go func(fn func(ctx context.Context))
	// Logger receives reservations that can't be confirmed. Default: none.
	Logger *slog.Logger
}

// Participant keeps this node's reservations that belong to acquires over several owners, and the
// outcomes of the acquires that it decides.
type Participant struct {
	opt          Options
	reservations reservations
	outcomes     outcomes
	coordinated  coordinatedOutcomes
	busy         atomic.Int64 // calls that are reserving, deciding or confirming
	takingBack   atomic.Int64 // acquires counted in doubt, and not carried out
}

// NewParticipant returns a participant without reservations.
func NewParticipant(opt Options) *Participant {
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
	return &Participant{
		opt: opt,
		reservations: reservations{open: map[rpc.AcquireID]*reservation{},
			gone: map[string]departure{}, ended: map[rpc.AcquireID]ending{}},
		outcomes:    outcomes{records: map[string]*record{}},
		coordinated: coordinatedOutcomes{byNumber: map[uint64]coordinatedOutcome{}},
	}
}

// InDoubt returns the number of acquires counted in doubt: the ones of unknown outcome, and the
// ones not carried out whose counts are still to be taken back.
func (p *Participant) InDoubt() int {
	return p.reservations.inDoubt() + int(p.takingBack.Load())
}

// Idle reports whether nothing is reserved, and nothing is being decided or confirmed. Call it once
// no new reservation is possible.
func (p *Participant) Idle() bool {
	// A reservation that is confirmed between the first two checks sets busy before it is closed.
	return p.busy.Load() == 0 && p.reservations.count() == 0 && p.busy.Load() == 0
}

// Serve runs steps of acquires over several owners (rpc.Verb.IsStep), in order, and sets Err in
// each result. Confirmations that wait for the store wait together.
func (p *Participant) Serve(ctx context.Context, tasks []rpc.Task, res []twotier.Result) {
	p.busy.Add(1)
	defer p.busy.Add(-1)
	for at := 0; at < len(tasks); {
		end := at
		for end < len(tasks) && isComparison(tasks[end].Verb) {
			end++
		}
		p.compareWithLimits(ctx, tasks[at:end], res[at:end])
		at = end
		for end < len(tasks) && !isComparison(tasks[end].Verb) {
			end++
		}
		p.confirmOrUndo(ctx, tasks[at:end], res[at:end])
		at = end
	}
}

// isComparison reports whether a step compares keys with limits.
func isComparison(v rpc.Verb) bool {
	return v == rpc.VerbReserve || v == rpc.VerbDecide || v == rpc.VerbCompare
}

// compareWithLimits runs steps that compare keys with limits.
func (p *Participant) compareWithLimits(
	ctx context.Context, tasks []rpc.Task, res []twotier.Result,
) {
	ops, out := make([]twotier.Op, 0, len(tasks)), make([]twotier.Result, 0, len(tasks))
	begun, at := make([]*decision, 0, len(tasks)), make([]int, 0, len(tasks))
	for i := range tasks {
		op := tasks[i].Op
		d, err := p.beginStep(&tasks[i], &op)
		if err != nil {
			res[i].Err = err
			continue
		}
		ops, out = append(ops, op), append(out, res[i])
		begun, at = append(begun, d), append(at, i)
	}
	if len(ops) > 0 {
		p.opt.Counter.DoAll(ctx, ops, out)
	}
	for k, i := range at {
		res[i] = out[k]
		p.endStep(&tasks[i], &ops[k], begun[k], &res[i])
	}
}

// beginStep prepares a step that compares. The decision is nil unless other nodes may ask about it.
func (p *Participant) beginStep(task *rpc.Task, op *twotier.Op) (*decision, error) {
	switch {
	case p.opt.InRedis():
		return nil, twotier.ErrNotOwner
	case task.Verb == rpc.VerbDecide:
		return p.outcomes.beginDecision(task.Acquire, task.Settled, time.Now())
	case p.reservations.count() >= maxReservations:
		return nil, fmt.Errorf("%w: too many reservations wait", twotier.ErrOverload)
	}
	op.Reserve = task.Acquire.String()
	return nil, nil
}

// endStep records the result of a step that compares.
func (p *Participant) endStep(
	task *rpc.Task, op *twotier.Op, d *decision, res *twotier.Result,
) {
	admitted := res.Err == nil && res.Allowed
	switch {
	case task.Verb == rpc.VerbDecide:
		// Counts that the store has not acknowledged in time are counts, too.
		counted := admitted || errors.Is(res.Err, twotier.ErrUnknownOutcome)
		p.outcomes.endDecision(d, counted, time.Now())
	case !admitted:
	case task.Verb == rpc.VerbCompare:
		p.opt.Counter.Undo(op)
	default:
		r := &reservation{op: reservedOp(op, res), id: task.Acquire, decider: task.Decider,
			since: time.Now(), settling: task.Acquire.Coordinator == p.opt.Self()}
		if err := p.reservations.add(r); err != nil {
			p.opt.Counter.Undo(op)
			res.Err = err
		}
	}
}

// reservedOp returns a copy of an operation that was admitted and reserved, at the time at which it
// will be counted.
func reservedOp(op *twotier.Op, res *twotier.Result) twotier.Op {
	o := twotier.Op{Kind: op.Kind, TS: op.TS, Reserve: op.Reserve,
		Checks: make([]twotier.Check, len(op.Checks))}
	for i := range op.Checks {
		c := &op.Checks[i]
		o.Checks[i] = twotier.Check{Kind: c.Kind, NS: bytes.Clone(c.NS), Key: bytes.Clone(c.Key),
			N: c.N, Until: c.Until, Values: slices.Clone(c.Values)}
		if i < len(res.Checks) && res.Checks[i].TS != 0 && !c.IsLease() {
			o.TS = res.Checks[i].TS
		}
	}
	return o
}

func (p *Participant) confirmOrUndo(ctx context.Context, tasks []rpc.Task, res []twotier.Result) {
	var waiting sync.WaitGroup
	defer waiting.Wait()
	for i := range tasks {
		task := &tasks[i]
		switch {
		case task.Verb == rpc.VerbUndo:
			res[i].Err = p.undo(task.Acquire)
		case len(tasks) > 1 && task.Op.Ack >= twotier.AckStore:
			waiting.Go(func() { res[i].Err = p.confirm(ctx, task.Acquire, task.Op.Ack) })
		default:
			res[i].Err = p.confirm(ctx, task.Acquire, task.Op.Ack)
		}
	}
}

// errNotAwaited means that a reservation was confirmed without waiting for the store.
var errNotAwaited = fmt.Errorf("%w: counted, but not yet acknowledged by the store",
	twotier.ErrUnknownOutcome)

// confirm counts a reservation. If it is no longer open, it has been counted already: a node that
// receives a confirmation has received no other outcome before.
func (p *Participant) confirm(ctx context.Context, id rpc.AcquireID, ack twotier.Ack) error {
	p.reservations.endDoubt(id)
	if r := p.reservations.close(id); r != nil {
		r.op.Ack = ack
		return p.opt.Counter.Confirm(ctx, &r.op)
	}
	if ack >= twotier.AckStore || ack == twotier.AckDefault {
		return errNotAwaited
	}
	return nil
}

// errCounted means that a reservation was counted before it was undone.
var errCounted = fmt.Errorf("%w: counted, because nobody could say what was decided",
	twotier.ErrUnknownOutcome)

// undo gives up a reservation. If it has been counted already, the error is errCounted: the
// coordinator must not begin the acquire again, because the count is only taken back later.
func (p *Participant) undo(id rpc.AcquireID) error {
	open, counted := p.reservations.giveUp(id, time.Now())
	switch {
	case open != nil:
		p.opt.Counter.Undo(&open.op)
	case counted:
		p.opt.Go(func(ctx context.Context) { p.undoDoubt(ctx, id) })
		return errCounted
	}
	return nil
}

package syncer

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer/store"
)

// Do runs one operation. It fills in res, whose memory it reuses. After an error res is meaningless
// and nothing was counted, except with ErrUnknownOutcome. Other errors are ErrClosed, ErrOverload,
// ErrUnavailable and *InvalidError.
func (c *Counter) Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	if c.opt.Pulse == nil {
		return c.do(ctx, op, res)
	}
	stops := c.opt.Pulse.Stops()
	if err := c.do(ctx, op, res); err != nil {
		return err
	}
	if isAdmission(op, res) && !c.opt.Pulse.HasRunSince(stops) {
		return c.withdraw(op)
	}
	return nil
}

// do is Do, and does not check whether the process stood still before its answer.
func (c *Counter) do(ctx context.Context, op *twotier.Op, res *twotier.Result) error {
	if err := c.durability.checkAck(ctx, op); err != nil {
		return err
	}
	res.Reset()
	if err := c.checkOpen(op); err != nil {
		return err
	}
	w := admission{ctx: ctx, opt: &c.opt}
	if isUnconditional(op) {
		return c.runPlainAdd(&w, op, res, c.opt.Now())
	}
	k := c.calls.Get().(*call)
	defer c.calls.Put(k)
	if err := k.prepare(&c.directory, op, c.opt.Now()); err != nil {
		return err
	}
	counted, err := k.decide(&w, res)
	switch {
	case err != nil || !c.durability.waitsForStore(op):
		return err
	case k.refused:
		return errRefusedKey
	case !counted:
		return nil
	}
	return k.awaitAck(ctx, &c.durability)
}

// runPlainAdd runs an Add without limits, which needs no knowledge of the key's past.
func (o *operations) runPlainAdd(w *admission, op *twotier.Op, res *twotier.Result,
	now int64) error {
	check := &op.Checks[0]
	var t target
	o.locate(&t, check)
	ts, err := op.Moment(t.sp.Ladder, now)
	if err != nil {
		return err
	}
	p, ticket := t.p, uint64(0)
	for again := true; again; again = errors.Is(err, twotier.ErrBehind) && w.waitForRoom() {
		if err != nil {
			now = o.opt.Now() // it has waited
		}
		p.mu.Lock()
		ticket, err = t.add(op, res, ts, now, w)
		p.mu.Unlock()
	}
	w.releaseRoom()
	err = w.explainRefusal(err)
	switch {
	case err != nil || !o.durability.waitsForStore(op):
		return err
	case ticket == noTicket:
		return errRefusedKey
	}
	mark, err := p.awaitAck(w.ctx, ticket, t.countedKey())
	if err != nil {
		return err
	}
	return cmp.Or(o.durability.awaitMarks(w.ctx, o.durability.ackLevel(op), []store.Mark{mark})...)
}

// operations is what the operations of a counter share.
type operations struct {
	opt Options
	directory
	durability durability
	calls      sync.Pool

	draining atomic.Bool // nothing more is counted, except confirmed reservations
	closed   atomic.Bool // nothing more is counted or read
}

// checkOpen returns ErrClosed if the counter no longer accepts operations of this kind.
func (o *operations) checkOpen(op *twotier.Op) error {
	if o.closed.Load() || !op.Reads() && o.draining.Load() {
		return twotier.ErrClosed
	}
	return nil
}

// isUnconditional reports whether an operation can be carried out without knowing its key's past:
// it counts and compares with nothing. Taking counts back needs the past, because it never takes
// back more than there is.
func isUnconditional(op *twotier.Op) bool {
	return op.Kind == twotier.Add && len(op.Checks) == 1 && len(op.Checks[0].Limits) == 0 &&
		op.Checks[0].N >= 0
}

// durability determines the ack level of an operation, and waits for it.
type durability struct {
	store     store.Store
	ack       twotier.Ack // the level of AckDefault
	placement twotier.Placement
}

// checkAck returns an error if an operation can't reach its ack level. It is called before anything
// is counted.
func (d *durability) checkAck(ctx context.Context, op *twotier.Op) error {
	ack := d.ackLevel(op)
	if ack < twotier.AckReplica || op.Reads() {
		return nil
	}
	keeper, ok := d.store.(store.Keeper)
	if !ok {
		return &twotier.InvalidError{Check: -1, Limit: -1, Field: "ack",
			Detail: "counts are kept in the memory of this server alone, want memory or redis"}
	}
	partitions := make([]int, len(op.Checks))
	for i := range op.Checks {
		partitions[i] = d.placement.Of(op.Checks[i].NS, op.Checks[i].Key)
	}
	return keeper.Keeps(ctx, ack, partitions...)
}

// ackLevel returns the ack level of an operation.
func (d *durability) ackLevel(op *twotier.Op) twotier.Ack {
	if op.Ack == twotier.AckDefault {
		return d.ack
	}
	return op.Ack
}

// waitsForStore reports whether an operation waits for the store.
func (d *durability) waitsForStore(op *twotier.Op) bool {
	return d.ackLevel(op) >= twotier.AckStore && !op.Reserves()
}

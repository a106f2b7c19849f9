package syncer

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer/internal/keys"
	"twotier.dev/twotier/syncer/internal/room"
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
	if err := c.opt.checkAck(ctx, op); err != nil {
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
	case err != nil || !c.opt.waitsForStore(op):
		return err
	case k.refused:
		return errRefusedKey
	case !counted:
		return nil
	}
	return k.awaitAck(ctx, &c.opt)
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
	case err != nil || !o.opt.waitsForStore(op):
		return err
	case ticket == noTicket:
		return errRefusedKey
	}
	mark, err := p.awaitAck(w.ctx, ticket, t.countedKey())
	if err != nil {
		return err
	}
	return cmp.Or(o.opt.awaitMarks(w.ctx, o.opt.ackLevel(op), []store.Mark{mark})...)
}

// operations is what the operations of a counter share.
type operations struct {
	opt Options
	directory
	calls sync.Pool

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

// checkAck returns an error if an operation can't reach its ack level. It is called before anything
// is counted.
func (o *Options) checkAck(ctx context.Context, op *twotier.Op) error {
	ack := o.ackLevel(op)
	if ack < twotier.AckReplica || op.Reads() {
		return nil
	}
	keeper, ok := o.Store.(store.Keeper)
	if !ok {
		return &twotier.InvalidError{Check: -1, Limit: -1, Field: "ack",
			Detail: "counts are kept in the memory of this server alone, want memory or redis"}
	}
	partitions := make([]int, len(op.Checks))
	for i := range op.Checks {
		partitions[i] = o.Placement.Of(op.Checks[i].NS, op.Checks[i].Key)
	}
	return keeper.Keeps(ctx, ack, partitions...)
}

// ackLevel returns the ack level of an operation.
func (o *Options) ackLevel(op *twotier.Op) twotier.Ack {
	if op.Ack == twotier.AckDefault {
		return o.Ack
	}
	return op.Ack
}

// waitsForStore reports whether an operation waits for the store.
func (o *Options) waitsForStore(op *twotier.Op) bool {
	return o.ackLevel(op) >= twotier.AckStore && !op.Reserves()
}

// admission lets an operation, or a batch of them, wait for room. All waits together leave enough
// of the operation's time to report a refusal to its caller, see patience.
type admission struct {
	ctx     context.Context
	opt     *Options
	by      time.Time
	never   bool       // don't wait for now
	granted *room.Room // has granted room for one key
	full    *room.Room // where there was no room
	class   room.Class // for a key of this class
}

// hasRoom reports whether one more key may wait for the store. If not, the admission records where
// there is no room. While the store can't be reached, only memory bounds the counts. The partition
// is locked.
func (w *admission) hasRoom(t *target) bool {
	m := t.p.owed.room
	if w.granted == m || t.p.keys.NoStore || m.HasRoom(room.NewKey) || t.p.outbox.Retry.Failing() ||
		t.p.health.down.Load() {
		return true
	}
	class := room.NewKey
	if r := t.p.keys.Find(t.hash, t.ns, t.check.Key); r != 0 {
		if t.p.keys.EntryAt(r).HasFlag(keys.FlagDirty | keys.FlagParked) {
			return true
		}
		if class = room.KnownKey; m.HasRoom(class) {
			return true
		}
	}
	w.full, w.class = m, class
	return false
}

// checkRoom returns why a call may not count, or nil if there is room for all of its keys. A ban
// needs room only if it starts, see bansToStart.
func (k *call) checkRoom() error {
	for i := range k.targets {
		switch t := &k.targets[i]; {
		case t.check.N == 0:
		case t.p.phase >= draining:
			return twotier.ErrClosed
		case !k.admission.hasRoom(t):
			return twotier.ErrBehind
		}
	}
	return nil
}

// waitForRoom waits for room after hasRoom found none. It reports whether to try again.
func (w *admission) waitForRoom() bool {
	if w.releaseRoom(); w.never {
		return false
	}
	out := w.full.Wait(w.ctx, w.class, w.remaining())
	if out == room.Granted {
		w.granted = w.full
	}
	return out != room.Refused
}

// patience is the fraction of an operation's time that it may spend waiting for room.
const patience = 0.75

// remaining returns how much longer the operation may wait.
func (w *admission) remaining() time.Duration {
	now := time.Now()
	if w.by.IsZero() {
		bound := w.opt.LoadTimeout
		if deadline, ok := w.ctx.Deadline(); ok {
			bound = deadline.Sub(now)
		}
		w.by = now.Add(time.Duration(patience * float64(bound)))
	}
	return w.by.Sub(now)
}

// explainRefusal adds an estimate of when there will be room to the refusal of an operation that
// waited for it. Other errors stay unchanged.
func (w *admission) explainRefusal(err error) error {
	if w.never || !errors.Is(err, twotier.ErrBehind) {
		return err
	}
	return &twotier.RetryError{Err: err, After: w.full.ExpectedWait(w.class)}
}

// releaseRoom gives back the granted room: either it was not used, or the counted key now takes it.
func (w *admission) releaseRoom() {
	if w.granted != nil {
		w.granted.Release()
		w.granted = nil
	}
}

// This file keeps the counter from deciding by what it knew before the process stood still. Other
// counters may have admitted events meanwhile, in its place or as the new owners of its partitions.
//
// Under the locks of the partitions, a call compares the time that it has read with the time that
// the pulse covers, and is refused like one whose partition has moved. If the process stands still
// after that reading, and goes on before the owner of Options.Pulse has called StopOwning, the call
// still counts: that shows when its answer is due, and the answer is no admission.

// stoodStill reports whether the process stood still before the call last read the clock. Reads
// don't admit anything, and may be as old as the standstill.
func (k *call) stoodStill() bool {
	return k.pulse != nil && k.Op.Kind != twotier.Count && !k.pulse.Covers(k.present)
}

// isAdmission reports whether an operation with this result admits events.
func isAdmission(op *twotier.Op, res *twotier.Result) bool {
	return op.Kind == twotier.Acquire && res.Allowed && !op.DryRun
}

// withdraw returns the error of an admitted operation during which the process stood still. Its
// counts stay. A reservation is undone: nobody has relied on it yet.
func (c *Counter) withdraw(op *twotier.Op) error {
	if op.Reserves() && c.Undo(op) {
		return twotier.ErrNotOwner
	}
	return errStoodStill
}

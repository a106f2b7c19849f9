package syncer

import (
	"cmp"
	"context"
	"errors"
)

// Do runs one operation. It fills in res, whose memory it reuses. On an error res has no meaning
// and nothing was counted, except after ErrUnknownOutcome. Other errors are ErrClosed, ErrOverload,
// ErrUnavailable and *InvalidError.
func (c *Counter) Do(ctx context.Context, op *Op, res *Result) error {
	if err := c.durability.check(ctx, op); err != nil {
		return err
	}
	w := admission{ctx: ctx, opt: &c.opt}
	refused, err := c.do(&w, op, res)
	if err == nil && refused && c.durability.waits(op) {
		return errRefusedKey
	}
	return err
}

// do is Do, except that it reports whether the store refuses one of the counted keys instead of
// returning an error for it.
func (c *Counter) do(w *admission, op *Op, res *Result) (refused bool, err error) {
	res.Reset()
	if err := c.closedTo(op); err != nil {
		return false, err
	}
	now := c.opt.Now()
	if op.unconditional() {
		return c.addOnly(w, op, res, now)
	}
	k := c.calls.Get().(*call)
	defer c.calls.Put(k)
	if err := c.prepare(k, op, now); err != nil {
		return false, err
	}
	counted, err := k.decide(w, res)
	if err != nil || !counted || k.refused || !c.durability.waits(op) {
		return k.refused, err
	}
	return false, k.commit(w.ctx, &c.durability)
}

// closedTo returns ErrClosed if the counter no longer takes operations of this kind.
func (c *Counter) closedTo(op *Op) error {
	if c.closed.Load() || !op.Reads() && c.draining.Load() {
		return ErrClosed
	}
	return nil
}

// DoAll runs operations in order and sets Err in each result. Operations that need the past of keys
// not in memory wait for all of them together, and so do those that wait for the store.
func (c *Counter) DoAll(ctx context.Context, ops []Op, res []Result) {
	kept, at := c.durability.thoseKept(ctx, ops, res)
	if at == nil {
		c.runBatch(ctx, ops, res)
		return
	}
	out := make([]Result, len(kept))
	c.runBatch(ctx, kept, out)
	for k, i := range at {
		res[i] = out[k]
	}
}

// addOnly runs an Add without limits, which needs to know nothing of the key's past.
func (c *Counter) addOnly(w *admission, op *Op, res *Result, now int64) (refused bool, err error) {
	check := &op.Checks[0]
	var t target
	c.locate(&t, check)
	ts, err := moment(op, t.sp.ladder, now)
	if err != nil {
		return false, err
	}
	p, ticket := t.p, uint64(0)
	for again := true; again; again = errors.Is(err, ErrBehind) && w.wait() {
		p.mu.Lock()
		ticket, err = t.add(op, res, ts, now, w)
		p.mu.Unlock()
	}
	w.end()
	err = w.explain(err)
	if err != nil || ticket == noTicket || !c.durability.waits(op) {
		return ticket == noTicket, err
	}
	mark, err := p.commit(w.ctx, ticket)
	if err == nil && t.parked() {
		err = errRefusedKey
	}
	if err != nil {
		return false, err
	}
	return false, cmp.Or(c.durability.await(w.ctx, c.durability.of(op), []Mark{mark})...)
}

// durability knows which ack an operation waits for, and waits for it.
type durability struct {
	store     Store
	ack       Ack // what AckDefault means
	placement Placement
}

// check returns an error if the ack that an operation asks for can't be waited for. It is called
// before anything is counted.
func (d *durability) check(ctx context.Context, op *Op) error {
	ack := d.of(op)
	if ack < AckReplica || op.Reads() {
		return nil
	}
	keeper, ok := d.store.(Keeper)
	if !ok {
		return &InvalidError{-1, -1, "ack",
			"counts are kept in the memory of this server alone, want memory or redis"}
	}
	partitions := make([]int, len(op.Checks))
	for i := range op.Checks {
		partitions[i] = d.placement.Of(op.Checks[i].NS, op.Checks[i].Key)
	}
	return keeper.Keeps(ctx, ack, partitions...)
}

// of returns the ack that an operation waits for.
func (d *durability) of(op *Op) Ack {
	if op.Ack == AckDefault {
		return d.ack
	}
	return op.Ack
}

// waits reports whether an operation waits for the store.
func (d *durability) waits(op *Op) bool { return d.of(op) >= AckStore && !op.reserves() }

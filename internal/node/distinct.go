package node

import (
	"context"
	"errors"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/distinct"
)

// Distinct adds values to a key, unless a limit forbids it, and counts the different values added
// so far. An operation without values only counts. Any operation can be repeated, whatever its
// outcome: adding a value again changes nothing.
func (n *Node) Distinct(ctx context.Context, op *distinct.Op, values [][]byte,
	res *distinct.Result) error {
	q, err := op.Request(n.opt.Placement.Seed, values)
	if err != nil {
		return err
	}
	var of twotier.Result
	if err := n.Do(ctx, &q, &of); err != nil {
		return asValueError(op, err)
	}
	op.Conclude(&of, res)
	if !res.Allowed && len(op.Shadow) > 0 {
		trial := []twotier.Result{of}
		n.Record(ctx, []twotier.Op{op.Trial(&q)}, trial)
		op.AddTrial(&trial[0], res)
	}
	return nil
}

// DistinctAll runs operations on one key in their order, and others at the same time. Each
// operation gets its own error, as from Distinct.
func (n *Node) DistinctAll(ctx context.Context, calls []distinct.Call) {
	all := newValueBatch(len(calls))
	for i := range calls {
		c := &calls[i]
		q, err := c.Op.Request(n.opt.Placement.Seed, c.Values)
		if c.Err = err; err == nil {
			all.add(c, q)
		}
	}
	n.DoAll(ctx, all.ops, all.res)
	trials := newValueBatch(0)
	for i, c := range all.calls {
		if err := all.res[i].Err; err != nil {
			c.Err = asValueError(c.Op, err)
			continue
		}
		c.Op.Conclude(&all.res[i], c.Res)
		if !c.Res.Allowed && len(c.Op.Shadow) > 0 {
			trials.add(c, c.Op.Trial(&all.ops[i]))
		}
	}
	if len(trials.calls) > 0 {
		n.Record(ctx, trials.ops, trials.res)
	}
	for i, c := range trials.calls {
		c.Op.AddTrial(&trials.res[i], c.Res)
	}
}

// valueBatch has the requests of some operations on values.
type valueBatch struct {
	calls []*distinct.Call
	ops   []twotier.Op
	res   []twotier.Result
}

func newValueBatch(most int) *valueBatch {
	return &valueBatch{make([]*distinct.Call, 0, most), make([]twotier.Op, 0, most),
		make([]twotier.Result, 0, most)}
}

func (b *valueBatch) add(c *distinct.Call, q twotier.Op) {
	b.calls, b.ops, b.res = append(b.calls, c), append(b.ops, q), append(b.res, twotier.Result{})
}

// asValueError makes the error of a request name the operation's own fields: the limits behind its
// own are windows.
func asValueError(op *distinct.Op, err error) error {
	invalid, ok := errors.AsType[*twotier.InvalidError](err)
	if !ok || invalid.Limit < len(op.Limits) {
		return err
	}
	named := *invalid
	named.Limit = -1
	return &named
}

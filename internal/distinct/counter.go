package distinct

import (
	"context"
	"errors"

	"twotier.dev/twotier"
)

// Service executes operations of a counter.
type Service interface {
	// Do executes one operation.
	Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error
	// DoAll executes operations and sets Err in each result. Operations on the same key are
	// executed in order.
	DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result)
}

// Counter executes operations on different values by those of a counter.
type Counter struct {
	Service Service
	// Seed seeds the hashes of values, the same on all nodes: that of the twotier.Placement.
	Seed uint64
}

// Distinct adds values to a key, unless a limit forbids it, and counts the different values added
// so far. An operation without values only counts. Any operation can be repeated, whatever its
// outcome: adding a value again changes nothing.
func (c *Counter) Distinct(ctx context.Context, op *Op, values [][]byte, res *Result) error {
	q, err := op.request(c.Seed, values)
	if err != nil {
		return err
	}
	var of twotier.Result
	if err := c.Service.Do(ctx, &q, &of); err != nil {
		return asValueError(op, err)
	}
	if err := op.conclude(&of, res); err != nil {
		return err
	}
	if !res.Allowed && len(op.Shadow) > 0 {
		trial := []twotier.Result{of}
		c.Service.DoAll(ctx, []twotier.Op{op.trial(&q)}, trial)
		op.addTrial(&trial[0], res)
	}
	return nil
}

// DistinctAll runs operations on one key in their order, and others at the same time. Each
// operation gets its own error, as from Distinct.
func (c *Counter) DistinctAll(ctx context.Context, calls []Call) {
	all := newValueBatch(len(calls))
	for i := range calls {
		one := &calls[i]
		q, err := one.Op.request(c.Seed, one.Values)
		if one.Err = err; err == nil {
			all.add(one, q)
		}
	}
	c.Service.DoAll(ctx, all.ops, all.res)
	trials := newValueBatch(0)
	for i, one := range all.calls {
		if err := all.res[i].Err; err != nil {
			one.Err = asValueError(one.Op, err)
		} else if one.Err = one.Op.conclude(&all.res[i], one.Res); one.Err != nil {
			continue
		} else if !one.Res.Allowed && len(one.Op.Shadow) > 0 {
			trials.add(one, one.Op.trial(&all.ops[i]))
		}
	}
	if len(trials.calls) > 0 {
		c.Service.DoAll(ctx, trials.ops, trials.res)
	}
	for i, one := range trials.calls {
		one.Op.addTrial(&trials.res[i], one.Res)
	}
}

// valueBatch has the requests of some operations on values.
type valueBatch struct {
	calls []*Call
	ops   []twotier.Op
	res   []twotier.Result
}

func newValueBatch(most int) *valueBatch {
	return &valueBatch{make([]*Call, 0, most), make([]twotier.Op, 0, most),
		make([]twotier.Result, 0, most)}
}

func (b *valueBatch) add(c *Call, q twotier.Op) {
	b.calls, b.ops, b.res = append(b.calls, c), append(b.ops, q), append(b.res, twotier.Result{})
}

// asValueError makes the error of a request name the operation's own fields: the limits behind its
// own are windows.
func asValueError(op *Op, err error) error {
	invalid, ok := errors.AsType[*twotier.InvalidError](err)
	if !ok || invalid.Limit < len(op.Limits) {
		return err
	}
	named := *invalid
	named.Limit = -1
	return &named
}

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

// Counter executes operations on different values by a service that executes operations with
// values.
type Counter struct{ Service Service }

// Distinct adds values to a key, unless a limit forbids it, and counts the different values added
// so far. An operation without values only counts. Any operation can be repeated, whatever its
// outcome: adding a value again changes nothing.
func (c *Counter) Distinct(ctx context.Context, op *Op, values [][]byte, res *Result) error {
	q, err := op.request(values)
	if err != nil {
		return err
	}
	var of twotier.Result
	if err := c.Service.Do(ctx, &q, &of); err != nil {
		return asValueError(op, err)
	}
	return op.conclude(&of, res)
}

// DistinctAll runs operations on one key in their order, and others at the same time. Each
// operation gets its own error, as from Distinct.
func (c *Counter) DistinctAll(ctx context.Context, calls []Call) {
	ops, of := make([]twotier.Op, 0, len(calls)), make([]*Call, 0, len(calls))
	for i := range calls {
		one := &calls[i]
		q, err := one.Op.request(one.Values)
		if one.Err = err; err == nil {
			ops, of = append(ops, q), append(of, one)
		}
	}
	res := make([]twotier.Result, len(ops))
	c.Service.DoAll(ctx, ops, res)
	for i, one := range of {
		if err := res[i].Err; err != nil {
			one.Err = asValueError(one.Op, err)
		} else {
			one.Err = one.Op.conclude(&res[i], one.Res)
		}
	}
}

// asValueError makes the error of a request name the operation's own fields: the limits behind its
// own are windows.
func asValueError(op *Op, err error) error {
	invalid, ok := errors.AsType[*twotier.InvalidError](err)
	if !ok {
		return err
	}
	named := *invalid
	if named.OfValues = false; named.Limit >= len(op.Limits) {
		named.Limit = -1
	}
	return &named
}

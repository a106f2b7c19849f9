package redisstore

import (
	"context"

	"twotier.dev/twotier/syncer"
)

func (d *Direct) ackOf(op *syncer.Op) syncer.Ack {
	if op.Ack == syncer.AckDefault {
		return d.opt.Ack
	}
	return op.Ack
}

// keeps returns why what an operation wants to wait for can't be waited for, before anything is
// counted.
func (d *Direct) keeps(ctx context.Context, op *syncer.Op) error {
	if d.ackOf(op) <= syncer.AckStore || op.Kind == syncer.Count {
		return nil
	}
	partitions := make([]int, len(op.Checks))
	for i := range op.Checks {
		partitions[i] = d.opt.Store.opt.Placement.Of(op.Checks[i].NS, op.Checks[i].Key)
	}
	return d.opt.Store.Keeps(ctx, d.ackOf(op), partitions...)
}

// keep waits until what an operation counted is kept as it asks for.
func (d *Direct) keep(ctx context.Context, op *syncer.Op, res *syncer.Result, marks []mark) error {
	if d.ackOf(op) <= syncer.AckStore || !counts(op, res) {
		return nil
	}
	return d.opt.Store.keep(ctx, d.ackOf(op), marks)
}

// keepAll is keep for a batch: all that it counted is waited for together.
func (d *Direct) keepAll(ctx context.Context, ops []syncer.Op, res []syncer.Result,
	marks [][]mark) {
	all := map[syncer.Ack][]mark{}
	for i := range ops {
		if len(marks[i]) > 0 && counts(&ops[i], &res[i]) {
			all[d.ackOf(&ops[i])] = append(all[d.ackOf(&ops[i])], marks[i]...)
		}
	}
	for ack, list := range all {
		err := d.opt.Store.keep(ctx, ack, list)
		for i := range ops {
			if err != nil && len(marks[i]) > 0 && d.ackOf(&ops[i]) == ack &&
				counts(&ops[i], &res[i]) {
				res[i].Err = err
			}
		}
	}
}

// counts reports whether an operation that was carried out has counted something.
func counts(op *syncer.Op, res *syncer.Result) bool {
	return op.Kind == syncer.Add || op.Kind == syncer.Acquire && (res.Allowed || op.CountDenied)
}

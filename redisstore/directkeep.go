package redisstore

import (
	"cmp"
	"context"

	"twotier.dev/twotier"
	"twotier.dev/twotier/redisstore/internal/fences"
)

func (d *Direct) ackOrDefault(op *twotier.Op) twotier.Ack {
	if op.Ack == twotier.AckDefault {
		return d.opt.Ack
	}
	return op.Ack
}

// checkAck returns an error if Redis can't offer the ack that an operation asks for. It is called
// before anything is counted.
func (d *Direct) checkAck(ctx context.Context, op *twotier.Op) error {
	if d.ackOrDefault(op) <= twotier.AckStore || op.Reads() {
		return nil
	}
	partitions := make([]int, len(op.Checks))
	for i := range op.Checks {
		partitions[i] = d.opt.Store.opt.Placement.Of(op.Checks[i].NS, op.Checks[i].Key)
	}
	return d.opt.Store.Keeps(ctx, d.ackOrDefault(op), partitions...)
}

// awaitAck waits until an operation's counts are kept as its ack demands.
func (d *Direct) awaitAck(ctx context.Context, op *twotier.Op, res *twotier.Result,
	marks []fences.Mark) error {
	if d.ackOrDefault(op) <= twotier.AckStore || !op.Changes(res) {
		return nil
	}
	return cmp.Or(d.opt.Store.fences.Keep(ctx, d.ackOrDefault(op), marks)...)
}

// awaitAcks is awaitAck for a batch. It waits for everything together, but the outcome of an
// operation depends only on its own marks.
func (d *Direct) awaitAcks(ctx context.Context, ops []twotier.Op, res []twotier.Result,
	marks [][]fences.Mark) {
	for _, ack := range []twotier.Ack{twotier.AckReplica, twotier.AckDisk} {
		var list []fences.Mark
		var of []int // positions of the operations
		for i := range ops {
			if d.ackOrDefault(&ops[i]) != ack || !ops[i].Changes(&res[i]) {
				continue
			}
			for _, m := range marks[i] {
				list, of = append(list, m), append(of, i)
			}
		}
		if len(list) == 0 {
			continue
		}
		for j, err := range d.opt.Store.fences.Keep(ctx, ack, list) {
			res[of[j]].Err = cmp.Or(res[of[j]].Err, err)
		}
	}
}

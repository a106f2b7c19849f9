package syncer

import "context"

// keeps returns why what an operation wants to wait for can't be waited for, before anything is counted.
func (c *Counter) keeps(ctx context.Context, op *Op) error {
	ack := c.ackOf(op)
	if ack < AckReplica || op.Kind == Count {
		return nil
	}
	keeper, ok := c.opt.Store.(Keeper)
	if !ok {
		return &InvalidError{-1, -1, "ack", "counts are kept in the memory of this server alone, want memory or redis"}
	}
	return keeper.Keeps(ctx, ack)
}

// keep waits until what the store has acknowledged would survive it as ack says.
func (c *Counter) keep(ctx context.Context, ack Ack, marks []Mark) error {
	if ack < AckReplica {
		return nil
	}
	return c.opt.Store.(Keeper).Keep(ctx, ack, marks)
}

// thoseKept divides operations: what can't be waited for as it wants to is refused in its result, and the others are returned with
// their positions. If all can, at is nil.
func (c *Counter) thoseKept(ctx context.Context, ops []Op, res []Result) (kept []Op, at []int) {
	var refused []int
	for i := range ops {
		if err := c.keeps(ctx, &ops[i]); err != nil {
			res[i].Err = err
			refused = append(refused, i)
		}
	}
	if len(refused) == 0 {
		return ops, nil
	}
	at = make([]int, 0, len(ops))
	for i := range ops {
		if len(refused) > 0 && refused[0] == i {
			refused = refused[1:]
			continue
		}
		kept, at = append(kept, ops[i]), append(at, i)
	}
	return kept, at
}

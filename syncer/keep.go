package syncer

import "context"

// durability is what operations of a counter wait for, and how that is found out.
type durability struct {
	store     Store
	ack       Ack // what AckDefault means
	placement Placement
}

// check returns why what an operation wants to wait for can't be waited for, before anything is
// counted.
func (d *durability) check(ctx context.Context, op *Op) error {
	ack := d.of(op)
	if ack < AckReplica || op.Kind == Count {
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

// await waits until what the store has acknowledged would survive it as ack says.
func (d *durability) await(ctx context.Context, ack Ack, marks []Mark) error {
	if ack < AckReplica {
		return nil
	}
	return d.store.(Keeper).Keep(ctx, ack, marks)
}

// thoseKept divides operations: what can't be waited for as it wants to is refused in its result,
// and the others are returned with their positions. If all can, at is nil.
func (c *Counter) thoseKept(ctx context.Context, ops []Op, res []Result) (kept []Op, at []int) {
	var refused []int
	for i := range ops {
		if err := c.durability.check(ctx, &ops[i]); err != nil {
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

// commitEach waits for what operations of a batch wait for: for all of them together.
func (c *Counter) commitEach(ctx context.Context, ops []Op, res []Result, waiting []int,
	commit map[*partition]uint64) {
	var marks []Mark
	var failed error
	for p, ticket := range commit {
		mark, err := c.commit(ctx, p, ticket)
		if err != nil {
			failed = err
		}
		marks = append(marks, mark)
	}
	kept := map[Ack]error{}
	for _, i := range waiting {
		ack := c.durability.of(&ops[i])
		if _, asked := kept[ack]; !asked && failed == nil {
			kept[ack] = c.durability.await(ctx, ack, marks)
		}
		switch err := c.parkedError(&ops[i]); {
		case failed != nil:
			res[i].Err = failed
		case err != nil:
			res[i].Err = err
		default:
			res[i].Err = kept[ack]
		}
	}
}

// of is what an operation waits for.
func (d *durability) of(op *Op) Ack {
	if op.Ack == AckDefault {
		return d.ack
	}
	return op.Ack
}

// waits reports whether an operation waits for the store.
func (d *durability) waits(op *Op) bool { return d.of(op) >= AckStore }

// commitAll waits for what an operation waits for, once it is counted.
func (c *Counter) commitAll(ctx context.Context, k *call) error {
	var marks []Mark
	for _, p := range k.parts {
		p.mu.Lock()
		ticket := p.dirty.lastTicket
		p.mu.Unlock()
		mark, err := c.commit(ctx, p, ticket)
		if err != nil {
			return err
		}
		marks = append(marks, mark)
	}
	if err := c.parkedError(k.op); err != nil {
		return err
	}
	return c.durability.await(ctx, c.durability.of(k.op), marks)
}

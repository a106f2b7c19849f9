package syncer

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
)

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

// await waits until what the store has acknowledged would survive it as ack says. It returns why
// not for each mark, nil if all of it would.
func (d *durability) await(ctx context.Context, ack Ack, marks []Mark) []error {
	if ack < AckReplica || len(marks) == 0 {
		return nil
	}
	return d.store.(Keeper).Keep(ctx, ack, marks)
}

// thoseKept divides operations: what can't be waited for as it wants to is refused in its result,
// and the others are returned with their positions. If all can, at is nil.
func (d *durability) thoseKept(ctx context.Context, ops []Op, res []Result) (kept []Op, at []int) {
	var refused []int
	for i := range ops {
		if err := d.check(ctx, &ops[i]); err != nil {
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

// commit waits for what operations of a batch wait for: for all of them together. What becomes of
// an operation is up to the partitions that it counted in, and to no others.
func (b *batch) commit(ctx context.Context) {
	if len(b.stored) == 0 {
		return
	}
	for p, ticket := range b.tickets {
		p.flushUpTo(ticket)
	}
	f := fate{failed: map[*partition]error{}, lost: map[keeping]error{}}
	b.commitSome(ctx, &f, false)
	b.commitSome(ctx, &f, true)
	for _, i := range b.stored {
		op := &b.ops[i]
		b.res[i].Err = b.c.parkedError(op)
		for j := range op.Checks {
			p := b.c.partitionOf(&op.Checks[j])
			b.res[i].Err = cmp.Or(f.failed[p], b.res[i].Err,
				f.lost[keeping{p, b.c.durability.of(op)}])
		}
	}
}

// fate is what has become of what was counted in partitions, nil where all is well.
type fate struct {
	failed map[*partition]error // the store has not acknowledged it
	lost   map[keeping]error    // the store has, but does not keep it as was asked for
}

// keeping is one kind of ack of one partition.
type keeping struct {
	p   *partition
	ack Ack
}

// commitSome waits for the partitions whose rounds get through, so that what was counted in them is
// known however long others take, or else for those that it has not waited for.
func (b *batch) commitSome(ctx context.Context, f *fate, patient bool) {
	marks := map[*partition]Mark{}
	for p, ticket := range b.tickets {
		mark, err := p.commitIf(ctx, ticket, func() bool {
			return patient || !p.outbox.retry.failing()
		})
		if errors.Is(err, errFailing) {
			continue
		}
		marks[p], f.failed[p] = mark, err
		delete(b.tickets, p)
	}
	asked := map[Ack]map[*partition]bool{AckReplica: {}, AckDisk: {}}
	for _, i := range b.stored {
		op := &b.ops[i]
		for j := range op.Checks {
			p := b.c.partitionOf(&op.Checks[j])
			if _, committed := marks[p]; committed && f.failed[p] == nil &&
				b.c.durability.of(op) >= AckReplica {
				asked[b.c.durability.of(op)][p] = true
			}
		}
	}
	for ack, parts := range asked {
		b.keep(ctx, f, ack, slices.Collect(maps.Keys(parts)), marks)
	}
}

// keep waits until what was counted in partitions is kept.
func (b *batch) keep(ctx context.Context, f *fate, ack Ack, parts []*partition,
	marks map[*partition]Mark) {
	list := make([]Mark, len(parts))
	for i, p := range parts {
		list[i] = marks[p]
	}
	for i, err := range b.c.durability.await(ctx, ack, list) {
		f.lost[keeping{parts[i], ack}] = err
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

// commit waits for what an operation waits for, once it is counted.
func (k *call) commit(ctx context.Context, d *durability) error {
	tickets := make([]uint64, len(k.parts))
	for i, p := range k.parts {
		tickets[i] = p.lastTicket()
		p.flushUpTo(tickets[i])
	}
	var marks []Mark
	for i, p := range k.parts {
		mark, err := p.commit(ctx, tickets[i])
		if err != nil {
			return err
		}
		marks = append(marks, mark)
	}
	for i := range k.targets {
		if k.targets[i].parked() {
			return errRefusedKey
		}
	}
	return cmp.Or(d.await(ctx, d.of(k.op), marks)...)
}

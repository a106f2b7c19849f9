package syncer

import (
	"context"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer/store"
)

// await waits until everything up to the marks would survive a loss of the store's server at the
// level of ack. It returns an error or nil for each mark, or nil if all would survive.
func (d *durability) await(ctx context.Context, ack twotier.Ack, marks []store.Mark) []error {
	if ack < twotier.AckReplica || len(marks) == 0 {
		return nil
	}
	return d.store.(store.Keeper).Keep(ctx, ack, marks)
}

// thoseKept excludes operations that can't reach their ack level, and sets the errors of their
// results. It returns the others with their positions. If none is excluded, at is nil.
func (d *durability) thoseKept(ctx context.Context, ops []twotier.Op,
	res []twotier.Result) (kept []twotier.Op, at []int) {
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

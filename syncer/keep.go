package syncer

import (
	"cmp"
	"context"
	"errors"

	"twotier.dev/twotier"
	"twotier.dev/twotier/syncer/store"
)

// awaitAcks waits for the acks of all operations of a batch together. The outcome of an operation
// depends only on the partitions that it counted in.
func (b *batch) awaitAcks(ctx context.Context) {
	if len(b.stored) == 0 {
		return
	}
	for p, ticket := range b.tickets {
		p.flushUpTo(ticket)
	}
	f := fate{keys: b.countedKeys(), failed: map[*partition]error{}, lost: map[keeping]error{}}
	b.awaitSomeAcks(ctx, &f, false)
	b.awaitSomeAcks(ctx, &f, true)
	for _, keys := range f.keys {
		for i := range keys {
			res := &b.res[keys[i].at]
			res.Err = cmp.Or(res.Err, keys[i].err)
		}
	}
	for _, i := range b.stored {
		op := &b.ops[i]
		for j := range op.Checks {
			p := b.o.partitionOf(&op.Checks[j])
			b.res[i].Err = cmp.Or(f.failed[p], b.res[i].Err,
				f.lost[keeping{p, b.o.opt.ackLevel(op)}])
		}
	}
}

// countedKeys returns the keys of the operations that wait for the store.
func (b *batch) countedKeys() map[*partition][]countedKey {
	keys := map[*partition][]countedKey{}
	for _, i := range b.stored {
		for j := range b.ops[i].Checks {
			var t target
			b.o.locate(&t, &b.ops[i].Checks[j])
			key := t.countedKey()
			key.at = i
			keys[t.p] = append(keys[t.p], key)
		}
	}
	return keys
}

// fate is the outcome of a batch's counts, by partition; nil where all is well.
type fate struct {
	keys   map[*partition][]countedKey // with the errors of single keys
	failed map[*partition]error        // the store has not acknowledged the counts
	lost   map[keeping]error           // acknowledged, but not kept at the level of ack
}

// keeping is an ack level that operations wait for in one partition.
type keeping struct {
	p   *partition
	ack twotier.Ack
}

// awaitSomeAcks waits for partitions. If patient is false, it skips partitions whose rounds are
// failing, so that the others' outcome is known without waiting for them. If it is true, it waits
// for all remaining ones.
func (b *batch) awaitSomeAcks(ctx context.Context, f *fate, patient bool) {
	marks := map[*partition]store.Mark{}
	for p, ticket := range b.tickets {
		mark, err := p.awaitAckIf(ctx, ticket, f.keys[p], func() bool {
			return patient || !p.outbox.Retry.Failing()
		})
		if errors.Is(err, errFailing) {
			continue
		}
		marks[p], f.failed[p] = mark, err
		delete(b.tickets, p)
	}
	asked := map[keeping]bool{}
	for _, i := range b.stored {
		op := &b.ops[i]
		for j := range op.Checks {
			p := b.o.partitionOf(&op.Checks[j])
			if _, committed := marks[p]; committed && f.failed[p] == nil {
				asked[keeping{p, b.o.opt.ackLevel(op)}] = true
			}
		}
	}
	for _, ack := range []twotier.Ack{twotier.AckReplica, twotier.AckDisk} {
		var all []keeping
		var list []store.Mark
		for k := range asked {
			if k.ack == ack {
				all, list = append(all, k), append(list, marks[k.p])
			}
		}
		for i, err := range b.o.opt.awaitMarks(ctx, ack, list) {
			f.lost[all[i]] = err
		}
	}
}

// awaitAck waits for the ack of a counted operation.
func (k *call) awaitAck(ctx context.Context, o *Options) error {
	tickets := make([]uint64, len(k.parts))
	for i, p := range k.parts {
		tickets[i] = p.lastTicket()
		p.flushUpTo(tickets[i])
	}
	var marks []store.Mark
	for i, p := range k.parts {
		mark, err := p.awaitAck(ctx, tickets[i], k.countedKeysIn(p)...)
		if err != nil {
			return err
		}
		marks = append(marks, mark)
	}
	return cmp.Or(o.awaitMarks(ctx, o.ackLevel(k.Op), marks)...)
}

// countedKeysIn returns the call's keys in a partition.
func (k *call) countedKeysIn(p *partition) (keys []countedKey) {
	for i := range k.targets {
		if t := &k.targets[i]; t.p == p {
			keys = append(keys, t.countedKey())
		}
	}
	return keys
}

// awaitMarks waits until everything up to the marks would survive a loss of the store's server at
// the level of ack. It returns an error or nil for each mark, or nil if all would survive.
func (o *Options) awaitMarks(ctx context.Context, ack twotier.Ack, marks []store.Mark) []error {
	if ack < twotier.AckReplica || len(marks) == 0 {
		return nil
	}
	return o.Store.(store.Keeper).Keep(ctx, ack, marks)
}

// excludeUnreachable excludes operations that can't reach their ack level, and sets the errors of
// their results. It returns the others with their positions. If none is excluded, at is nil.
func (o *Options) excludeUnreachable(ctx context.Context, ops []twotier.Op,
	res []twotier.Result) (kept []twotier.Op, at []int) {
	var refused []int
	for i := range ops {
		if err := o.checkAck(ctx, &ops[i]); err != nil {
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

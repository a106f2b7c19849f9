package node

import (
	"context"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/companions"
	"twotier.dev/twotier/internal/topkeys"
)

// leaseTries bounds the readings of a key whose leases change meanwhile.
const leaseTries = 3

// OpenLeases returns how many leases of a key are open. Like Do, it asks the key's owner, or Redis.
func (n *Node) OpenLeases(ctx context.Context, ns, key []byte) (open twotier.OpenLeases,
	err error) {
	if !n.opened.Load() {
		return open, errStarting
	}
	for range leaseTries {
		if open, err = n.readLeases(ctx, ns, key, 0); err != nil || open.Open == 0 {
			return open, err
		}
		next, err := n.readLeases(ctx, ns, key, open.Open)
		if err != nil || next.Open == open.Open {
			return next, err
		}
	}
	return open, nil
}

// readLeases reads how many leases of a key are open and, if they are as many as most, when the
// next one ends.
func (n *Node) readLeases(ctx context.Context, ns, key []byte, most int64) (twotier.OpenLeases,
	error) {
	op := companions.OpenOp(ns, key, most, n.leaseEnd())
	var res twotier.Result
	err := n.router.Do(ctx, &op, &res)
	return twotier.OpenLeases{Open: companions.OpenOf(&res), NextEnd: max(0, res.RetryAfter),
		Source: res.Source, Degraded: res.Degraded}, err
}

// leaseEnd returns an end for the leases of dry runs.
func (n *Node) leaseEnd() int64 {
	return twotier.LeaseEnd(n.opt.Clock.Now(), twotier.MaxLease.Milliseconds()/2)
}

// ownLeases is a [topkeys.Source]: of all keys of which this node knows, it lists those with the
// most leases that are open now.
func (n *Node) ownLeases(ctx context.Context, _ string, limit int,
	_ int64) ([]twotier.KeyCount, error) {
	if n.inRedis() {
		return n.topSampledLeases(ctx, limit)
	}
	return n.opt.Counter.TopLeases(ctx, limit)
}

// sampleLeases samples the keys of which an operation has taken leases.
func (n *Node) sampleLeases(op *twotier.Op) {
	for i := range op.Leases {
		c := &op.Checks[op.Leases[i].Check]
		n.leased.Add(&twotier.Check{NS: c.NS, Key: c.Key, N: 1}, n.opt.Clock.Now())
	}
}

// topSampledLeases asks Redis about the sampled keys. A key may have many open leases although it
// is not among those of which the most were taken.
func (n *Node) topSampledLeases(ctx context.Context, limit int) ([]twotier.KeyCount, error) {
	rows, err := n.leased.Top("", refusedRowLimit(limit), twotier.MaxLease.Milliseconds(),
		n.opt.Clock.Now())
	if err != nil {
		return nil, err
	}
	ops, res := make([]twotier.Op, len(rows)), make([]twotier.Result, len(rows))
	for i := range rows {
		ops[i] = companions.OpenOp([]byte(rows[i].NS), []byte(rows[i].Key), 0, n.leaseEnd())
	}
	n.router.DoAll(ctx, ops, res)
	open := rows[:0]
	for i, row := range rows {
		if res[i].Err != nil {
			return nil, res[i].Err
		}
		if row.Count = companions.OpenOf(&res[i]); row.Count > 0 {
			open = append(open, row)
		}
	}
	return topkeys.Largest(open, limit), nil
}

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/redisstore/internal/fences"
)

// acquireAcrossPartitions acquires over several partitions of a cluster, one after the other. If
// one refuses, the earlier ones take back their counts. Others may see the temporary counts, which
// can cause a refusal but never let one too many through. Values can't be taken back, because they
// may have been seen before: their partitions come last, and only compare if an earlier one has
// refused. If one of several with values refuses, the values of those before it stay.
func (d *Direct) acquireAcrossPartitions(ctx context.Context, op *twotier.Op, ts int64,
	res *twotier.Result) (marks []fences.Mark, err error) {
	res.Reset()
	res.Allowed, res.Source = true, twotier.SourceRedis
	for range op.Checks {
		res.AddCheck()
	}
	counted := make([]bool, len(op.Checks))
	var failed error
	for _, checks := range d.groupByPartition(op) {
		var at []fences.Mark
		part := *op
		part.DryRun = op.DryRun || !res.Allowed && !op.CountsRefused(res) &&
			hasValues(op, checks)
		if at, failed = d.acquirePart(ctx, &part, ts, checks, counted, res); failed != nil {
			break
		}
		marks = append(marks, at...)
		for _, i := range checks {
			if part.DryRun && !op.DryRun && counted[i] {
				counted[i] = false
				uncount(op, i, res)
			}
		}
	}
	if failed == nil && res.Allowed {
		return marks, nil
	}
	keeps := failed == nil && op.CountsRefused(res)
	for i := range op.Checks {
		if keeps && !op.Checks[i].IsLease() || op.Checks[i].IsValues() {
			counted[i] = false
		}
		if counted[i] {
			uncount(op, i, res)
		}
	}
	if !op.DryRun {
		failed = errors.Join(failed, d.takeBack(ctx, op, ts, counted))
	}
	return marks, failed
}

// uncount subtracts the counts of a check from its result, of which values remain.
func uncount(op *twotier.Op, i int, res *twotier.Result) {
	r, n := &res.Checks[i], op.Checks[i].N+extra(op, i)
	r.TS = 0
	for j := range r.Limits {
		if lr := &r.Limits[j]; !op.Checks[i].IsValues() {
			lr.Count, lr.Lo, lr.Hi = lr.Count-n, lr.Lo-n, lr.Hi-n
		}
	}
}

// hasValues reports whether some of the given checks of an operation are about different values.
func hasValues(op *twotier.Op, checks []int) bool {
	return slices.ContainsFunc(checks, func(i int) bool { return op.Checks[i].IsValues() })
}

// groupByPartition groups the positions of an operation's checks by partition. A key and its bans
// share a partition, and so do all checks of a key, whose limits apply to the sum of their counts.
// Partitions with values come last.
func (d *Direct) groupByPartition(op *twotier.Op) (parts [][]int) {
	at := map[int]int{} // by partition, the position in parts
	for i := range op.Checks {
		c := &op.Checks[i]
		p := d.opt.Store.opt.Placement.Of(c.NS, c.Key)
		if _, known := at[p]; !known {
			at[p] = len(parts)
			parts = append(parts, nil)
		}
		parts[at[p]] = append(parts[at[p]], i)
	}
	seen := func(part []int) bool { return hasValues(op, part) }
	last := slices.DeleteFunc(slices.Clone(parts), func(part []int) bool { return !seen(part) })
	return append(slices.DeleteFunc(parts, seen), last...)
}

// acquirePart acquires the given checks of an operation, which share a partition. It adds their
// results to the operation's result, and records which of them have counted.
func (d *Direct) acquirePart(ctx context.Context, op *twotier.Op, ts int64, checks []int,
	counted []bool, res *twotier.Result) (marks []fences.Mark, err error) {
	one := twotier.Op{Kind: op.Kind, TS: op.TS, Ack: op.Ack, CountDenied: op.CountDenied,
		Charge: op.Charge, DryRun: op.DryRun}
	for _, i := range checks {
		one.Checks = append(one.Checks, op.Checks[i])
	}
	var part twotier.Result
	call := d.newCall(&one, ts, d.opt.Now())
	call.dated = true // all parts have one moment, at which their counts may be taken back
	if marks, err = d.submitAndWait(ctx, &one, call, &part, true); err != nil {
		return nil, err
	}
	res.Allowed = res.Allowed && part.Allowed
	if res.RetryAfter >= 0 && (part.RetryAfter < 0 || part.RetryAfter > res.RetryAfter) {
		res.RetryAfter = part.RetryAfter
	}
	counts := part.Allowed || one.CountsRefused(&part)
	for k, i := range checks {
		res.Checks[i] = part.Checks[k]
		counted[i] = counts && op.Checks[i].N > 0 && (part.Allowed || !op.Checks[i].IsLease())
	}
	return marks, nil
}

// takingBack returns the operation that takes back what a check has counted at a time.
func takingBack(c twotier.Check, ts int64) twotier.Op {
	op := twotier.Op{Kind: twotier.Add, TS: ts, Ack: twotier.AckStore}
	if c.N, c.Limits = -c.N, nil; c.IsLease() {
		op.Kind, op.TS, c.Limits = twotier.Acquire, 0, []twotier.Limit{{Window: 1}}
	}
	op.Checks = []twotier.Check{c}
	return op
}

// takeBack takes back the counts of some checks of an acquire, even if ctx has ended. If one can't
// be taken back, it still takes back the others.
func (d *Direct) takeBack(ctx context.Context, op *twotier.Op, ts int64, counted []bool) error {
	var ops []twotier.Op
	for i, back := range op.Checks {
		if counted[i] {
			ops = append(ops, takingBack(back, ts))
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.opt.Timeout)
	defer cancel()
	var errs []error
	res := make([]twotier.Result, len(ops))
	d.DoAll(ctx, ops, res)
	for i := range res {
		if err := res[i].Err; err != nil {
			errs = append(errs, fmt.Errorf("%w: take back: %w", twotier.ErrUnknownOutcome, err))
		}
	}
	return errors.Join(errs...)
}

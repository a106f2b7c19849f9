package redisstore

import (
	"context"
	"errors"
	"fmt"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore/internal/scripts"
	"twotier.dev/twotier/syncer"
)

// Series returns the buckets of a key over a window of this many milliseconds that ends now, oldest
// first, and their width.
func (d *Direct) Series(ctx context.Context, ns, key []byte,
	window int64) (bucketMS int64, points []twotier.Point, err error) {
	op := readOp(ns, key, window)
	v, now, err := d.read(ctx, &op)
	if err != nil {
		return 0, nil, err
	}
	bucketMS, ok := v.Series(window, now, func(start, n int64) {
		points = append(points, twotier.Point{Start: start, Count: n})
	})
	if !ok {
		return 0, nil, twotier.OutOfReach(&op, v.Ladder, window, now, now)
	}
	return bucketMS, points, nil
}

// Snapshot returns all buckets of a key, and the present time in unix milliseconds.
func (d *Direct) Snapshot(ctx context.Context, ns, key []byte) (v leaparray.View, now int64,
	err error) {
	op := readOp(ns, key, 1)
	return d.read(ctx, &op)
}

func readOp(ns, key []byte, window int64) twotier.Op {
	return twotier.Op{Kind: twotier.Count,
		Checks: []twotier.Check{{NS: ns, Key: key, Limits: []twotier.Limit{{Window: window}}}}}
}

// read reads the key of an operation.
func (d *Direct) read(ctx context.Context, op *twotier.Op) (v leaparray.View, now int64,
	err error) {
	now = d.opt.Now()
	if _, err := twotier.Validate(op, d.ladder, now); err != nil {
		return v, now, err
	}
	c := d.newCall(op, now, now)
	if err = d.submit(c); err == nil {
		err = c.wait(ctx, d.opt.Timeout)
	}
	if err != nil {
		return v, now, err
	}
	return c.known.View, now, nil
}

// Forget deletes a key. Counters that still know its counts will not restore them after an earlier
// loss.
func (d *Direct) Forget(ctx context.Context, ns, key []byte) error {
	ns = storedNamespace(ns)
	s := d.opt.Store
	if err := s.ensureReady(ctx); err != nil {
		return fmt.Errorf("reset: %w: %w", twotier.ErrUnavailable, err)
	}
	partition := s.opt.Placement.Of(ns, key)
	call := &scripts.Call{Script: s.scripts.Reset, Args: []any{s.sequenceTTL},
		Keys: []string{s.prefix.StateKey(partition), s.prefix.Key(partition, ns, key)}}
	err := s.runOne(ctx, call)
	if errors.Is(err, syncer.ErrNotApplied) {
		err = fmt.Errorf("%w: %w", twotier.ErrUnavailable, err)
	}
	if err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	return nil
}

package redisstore

import (
	"context"
	"errors"
	"fmt"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// Series returns the buckets of a key over a window of this many milliseconds that ends now, oldest
// first, and their width.
func (d *Direct) Series(ctx context.Context, ns, key []byte,
	window int64) (bucketMS int64, points []syncer.Point, err error) {
	op := syncer.Op{Kind: syncer.Count,
		Checks: []syncer.Check{{NS: ns, Key: key, Limits: []syncer.Limit{{Window: window}}}}}
	now := d.opt.Now()
	if _, err := syncer.Validate(&op, d.ladder, now); err != nil {
		return 0, nil, err
	}
	c := d.encode(&op, now, now)
	if err := d.submit(c); err != nil {
		return 0, nil, err
	}
	if err := c.wait(ctx, d.opt.Timeout); err != nil {
		return 0, nil, err
	}
	var res syncer.Result
	if err := c.outcome(&op, &res); err != nil {
		return 0, nil, err
	}
	l := d.ladder(ns)
	held, err := c.held()
	if err != nil {
		return 0, nil, err
	}
	v := leaparray.View{Ladder: l, A: counterOf(l, held)}
	bucketMS, ok := v.Series(window, now, func(start, n int64) {
		points = append(points, syncer.Point{Start: start, Count: n})
	})
	if !ok {
		return 0, nil, syncer.OutOfReach(&op, l, window, now, now)
	}
	return bucketMS, points, nil
}

// Forget deletes a key. Counters that still know its counts will not restore them after an earlier
// loss.
func (d *Direct) Forget(ctx context.Context, ns, key []byte) error {
	if string(ns) == syncer.DefaultNamespace {
		ns = nil
	}
	s := d.opt.Store
	if err := s.ensureReady(ctx); err != nil {
		return fmt.Errorf("reset: %w: %w", syncer.ErrUnavailable, err)
	}
	partition := s.opt.Placement.Of(ns, key)
	call := &scriptCall{
		script: s.scripts.reset, keys: []string{stateKey(partition), Key(partition, ns, key)},
		args: []any{s.sequenceTTL},
	}
	s.roundTrips.Add(1)
	run(ctx, s.client, []*scriptCall{call})
	if err := call.err(); err != nil {
		if err = s.classify(err); errors.Is(err, syncer.ErrNotApplied) {
			err = fmt.Errorf("%w: %w", syncer.ErrUnavailable, err)
		}
		return fmt.Errorf("reset: %w", err)
	}
	return nil
}

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/topkeys"
)

// Series returns the buckets of a key over a window, in milliseconds, that ends now, oldest first,
// and their width.
func (n *Node) Series(ctx context.Context, ns, key []byte,
	window int64) (bucketMS int64, points []twotier.Point, err error) {
	for attempts := retry.Within(ownership.WaitTimeout); attempts.Next(ctx); {
		if bucketMS, points, err = n.series(ctx, ns, key, window); !errors.Is(err,
			twotier.ErrNotOwner) {
			return bucketMS, points, err
		}
	}
	return 0, nil, fmt.Errorf("%w: the key is being handed over", twotier.ErrUnavailable)
}

// series is one attempt of Series. It may fail with ErrNotOwner if the key starts to change hands.
func (n *Node) series(ctx context.Context, ns, key []byte,
	window int64) (bucketMS int64, points []twotier.Point, err error) {
	if n.inRedis() {
		err = n.modes.During(ctx, modes.Redis, func() (err error) {
			bucketMS, points, err = n.opt.Direct.Series(ctx, ns, key, window)
			return err
		})
		if !errors.Is(err, modes.ErrChanged) {
			return bucketMS, points, err
		}
	}
	to, err := n.owned.Locate(ctx, n.opt.Placement.Of(ns, key))
	switch {
	case errors.Is(err, ownership.ErrInRedis):
		return n.series(ctx, ns, key, window)
	case err == nil && to != nil:
		var a SeriesResponse
		err = n.opt.Peers.Ask(ctx, to, &SeriesRequest{ns, key, window}, &a)
		if err == nil || errors.As(err, new(*twotier.InvalidError)) {
			return a.BucketMS, a.Points, err
		}
	case err == nil:
		bucketMS, points, err = n.opt.Counter.Series(ctx, ns, key, window, false)
		if !errors.Is(err, twotier.ErrNotOwner) {
			return bucketMS, points, err
		}
	}
	return n.opt.Counter.Series(ctx, ns, key, window, true)
}

// newTop makes what the lists of keys need.
func (n *Node) newTop() {
	n.leases = topkeys.NewCache(n.ownLeases)
	if n.opt.Counter != nil {
		n.top = topkeys.NewCache(n.opt.Counter.TopWithPrefix)
	}
	if n.opt.Direct != nil {
		n.sample, n.leased = topkeys.NewSample(), topkeys.NewSample()
	}
}

// Top returns up to limit keys that begin with a prefix and have the largest counts over the
// window, largest first, from all nodes that can be reached. The answer may be a second old. by is
// what it counts: events, or
//   - "refused" and "shadow": refusals of acquires, and those that rules in shadow would have made.
//     Each node contributes the most frequent keys in its own requests, in either mode.
//   - "concurrent": open leases of all keys now. In Redis mode it only covers the keys of which the
//     nodes have taken the most leases.
//
// In Redis mode the counts of events only cover the most frequent keys in this node's requests.
func (n *Node) Top(ctx context.Context, by, prefix string, limit int,
	window int64) ([]twotier.KeyCount, error) {
	var own *topkeys.Cache
	q := TopRefusedRequest{Limit: limit, Window: window, Prefix: prefix}
	var others any
	var merge func([]twotier.KeyCount) []twotier.KeyCount
	switch by {
	case "refused":
		q.Limit = refusedRowLimit(limit)
		own, others, merge = n.denied.Cache, &q, topkeys.SumByKey
	case "shadow":
		q.Limit = refusedRowLimit(limit)
		own, others, merge = n.shadowed.Cache, (*TopShadowRefusedRequest)(&q), topkeys.SumByKey
	case "concurrent":
		q.Window, q.Prefix = 0, ""
		own, others, merge = n.leases, &TopLeasesRequest{limit}, topkeys.MaxByKey
	default:
		if n.inRedis() {
			return n.sample.Top(prefix, limit, window, n.opt.Clock.Now())
		}
		own, others = n.top, &TopRequest{Limit: limit, Window: window, Prefix: prefix}
	}
	rows, err := own.Top(ctx, q.Prefix, q.Limit, q.Window)
	if err != nil {
		return nil, err
	}
	askOthers(ctx, n, topTimeout, others, func(a *TopResponse) { rows = append(rows, a.Keys...) })
	if rows = topkeys.WithPrefix(rows, q.Prefix); merge != nil {
		rows = merge(rows)
	}
	return topkeys.Largest(rows, limit), nil
}

// refusedRowLimit returns the number of rows that each node reports to make the first rows of the
// sum accurate: a key may be among them without being among the first of any node.
func refusedRowLimit(limit int) int { return 4*limit + 64 }

// topTimeout bounds the wait for other nodes' top keys.
const topTimeout = time.Second

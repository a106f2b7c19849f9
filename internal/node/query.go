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
// window, largest first, from all nodes that can be reached. by is what it counts: events, or
// "refused", "shadow" or "concurrent", see [Node.TopRefused], [Node.TopShadowRefused] and
// [Node.TopLeases], which lists all keys. In Redis mode the counts of events only cover the most
// frequent keys in this node's requests. The answer may be a second old.
func (n *Node) Top(ctx context.Context, by, prefix string, limit int,
	window int64) ([]twotier.KeyCount, error) {
	switch by {
	case "refused":
		return n.TopRefused(ctx, prefix, limit, window)
	case "shadow":
		return n.TopShadowRefused(ctx, prefix, limit, window)
	case "concurrent":
		return n.TopLeases(ctx, limit)
	}
	if n.inRedis() {
		return n.sample.Top(prefix, limit, window, n.opt.Clock.Now())
	}
	rows, err := n.top.Top(ctx, prefix, limit, window)
	if err != nil {
		return nil, err
	}
	rows = n.gather(ctx, &TopRequest{Limit: limit, Window: window, Prefix: prefix}, rows)
	return topkeys.Largest(topkeys.WithPrefix(rows, prefix), limit), nil
}

// TopRefused is Top for the keys with the most refused acquires, including acquires over several
// nodes. Each node contributes the most frequent keys in its own requests, in either mode.
func (n *Node) TopRefused(ctx context.Context, prefix string, limit int,
	window int64) ([]twotier.KeyCount, error) {
	q := TopRefusedRequest{refusedRowLimit(limit), window, prefix}
	return n.topRefused(ctx, limit, n.denied, &q, &q)
}

// TopShadowRefused is TopRefused for the refusals that rules in shadow would have made.
func (n *Node) TopShadowRefused(ctx context.Context, prefix string, limit int,
	window int64) ([]twotier.KeyCount, error) {
	q := TopRefusedRequest{refusedRowLimit(limit), window, prefix}
	return n.topRefused(ctx, limit, n.shadowed, &q, (*TopShadowRefusedRequest)(&q))
}

// topRefused adds up this node's refusals and the other nodes' answers to the request, which asks
// them the same as q asks this node.
func (n *Node) topRefused(ctx context.Context, limit int, noted *topkeys.Refused,
	q *TopRefusedRequest, request any) ([]twotier.KeyCount, error) {
	rows, err := noted.Top(ctx, q.Prefix, q.Limit, q.Window)
	if err != nil {
		return nil, err
	}
	rows = topkeys.WithPrefix(n.gather(ctx, request, rows), q.Prefix)
	return topkeys.Largest(topkeys.SumByKey(rows), limit), nil
}

// refusedRowLimit returns the number of rows that each node reports to make the first rows of the
// sum accurate: a key may be among them without being among the first of any node.
func refusedRowLimit(limit int) int { return 4*limit + 64 }

// gather adds the answers of all other nodes that can be reached.
func (n *Node) gather(ctx context.Context, request any,
	rows []twotier.KeyCount) []twotier.KeyCount {
	askOthers(ctx, n, topTimeout, request, func(a *TopResponse) { rows = append(rows, a.Keys...) })
	return rows
}

// topTimeout bounds the wait for other nodes' top keys.
const topTimeout = time.Second

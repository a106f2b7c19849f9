package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/internal/topkeys"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// Series returns the buckets of a key over a window of this many milliseconds that ends now, oldest
// first, and their width.
func (n *Node) Series(ctx context.Context, ns, key []byte,
	window int64) (bucketMS int64, points []Point, err error) {
	for attempts := retry.Within(ownership.WaitTimeout); attempts.Next(ctx); {
		if bucketMS, points, err = n.series(ctx, ns, key, window); !errors.Is(err,
			syncer.ErrNotOwner) {
			return bucketMS, points, err
		}
	}
	return 0, nil, fmt.Errorf("%w: the key is just changing hands", syncer.ErrUnavailable)
}

// series is one attempt of Series. It may fail with ErrNotOwner if the key starts to change hands.
func (n *Node) series(ctx context.Context, ns, key []byte,
	window int64) (bucketMS int64, points []Point, err error) {
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
		var a SeriesAnswer
		err = n.opt.Peers.Ask(ctx, to, &SeriesQuestion{ns, key, window}, &a)
		if err == nil || errors.As(err, new(*syncer.InvalidError)) {
			return a.BucketMS, a.Points, err
		}
	case err == nil:
		bucketMS, points, err = n.opt.Counter.Series(ctx, ns, key, window, false)
		if !errors.Is(err, syncer.ErrNotOwner) {
			return bucketMS, points, err
		}
	}
	return n.opt.Counter.Series(ctx, ns, key, window, true)
}

// Top returns up to limit keys with the largest counts over the window, largest first, from all
// nodes that can be reached. In Redis mode it only knows the most frequent of the keys that this
// node was asked about. The answer may be a second old.
func (n *Node) Top(ctx context.Context, limit int, window int64) ([]KeyCount, error) {
	if n.inRedis() {
		return n.sample.Top(limit, window, n.opt.Clock.Now())
	}
	rows, err := n.top.Top(ctx, limit, window)
	if err != nil || n.opt.Ring == nil {
		return rows, err
	}
	var mu sync.Mutex
	rpc.Broadcast(ctx, n.table(), topTimeout, func(ctx context.Context, m *ring.Member) {
		var a TopAnswer
		if err := n.opt.Peers.Ask(ctx, m, &TopQuestion{limit, window}, &a); err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		rows = append(rows, a.Keys...)
	})
	return topkeys.Largest(rows, limit), nil
}

// topTimeout bounds how long other nodes may take to report their busiest keys.
const topTimeout = time.Second

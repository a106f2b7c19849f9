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

// series is Series unless the key begins to change hands meanwhile.
func (n *Node) series(ctx context.Context, ns, key []byte,
	window int64) (bucketMS int64, points []Point, err error) {
	if n.inRedis() {
		err = n.modes.During(ctx, ModeRedis, func() (err error) {
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

// Top returns up to limit keys with the largest counts over the window, largest first,
// cluster-wide: of nodes that can be reached. In Redis mode it knows only what this node was asked,
// and only the keys it was asked about most. An answer may be a second old.
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

const (
	// topTimeout bounds how long other nodes may take to tell their busiest keys.
	topTimeout = time.Second
	// dropTimeout bounds how long they may take to forget a key.
	dropTimeout = time.Second
)

// Reset forgets a key in memory, on every node, and in the store, and with it all that was counted
// before. If a node can't be told nobody knows whether it has counted something that it will still
// flush; one that the members have taken for dead, and that is not, or that is on the other side of
// a split, brings back what it had not flushed. In Redis mode the reset is carried out once the
// store has forgotten the key. A node that could not be told then, or that read a hot key while it
// was reset, brings it back if the store loses what it has before that node has read the key again.
func (n *Node) Reset(ctx context.Context, ns, key []byte) error {
	check := Check{NS: ns, Key: key}
	n.refused.Forget(&check)
	if n.inRedis() {
		err := n.modes.During(ctx, ModeRedis, func() error {
			return n.opt.Direct.Forget(ctx, ns, key)
		})
		if err == nil {
			_ = n.dropAll(ctx, &check, true) // or it would be restored, were it lost
		}
		if !errors.Is(err, modes.ErrChanged) {
			return err
		}
	}
	dropped := n.dropAll(ctx, &check, false)
	for attempts := retry.Within(ownership.WaitTimeout); attempts.Next(ctx); {
		to, err := n.owned.Locate(ctx, n.opt.Placement.Of(ns, key))
		switch {
		case errors.Is(err, ownership.ErrInRedis):
			return n.Reset(ctx, ns, key)
		case err != nil:
			return err
		case to == nil:
			err = n.forget(ctx, &check)
		default:
			task := [1]rpc.Task{{Verb: rpc.VerbReset, Op: Op{Checks: []Check{check}}}}
			var res [1]Result
			n.opt.Peers.Do(ctx, to, task[:], res[:])
			if err = res[0].Err; errors.Is(err, rpc.ErrUnreachable) {
				err = fmt.Errorf(
					"%w: the others have forgotten it, but the owner could not be told: %v",
					syncer.ErrUnknownOutcome, err)
			}
		}
		if !errors.Is(err, syncer.ErrNotOwner) {
			return errors.Join(err, dropped)
		}
	}
	return fmt.Errorf("%w: the key is just changing hands", syncer.ErrUnavailable)
}

// forget resets a key that this node decides about.
func (n *Node) forget(ctx context.Context, c *Check) error {
	if n.inRedis() {
		return n.opt.Direct.Forget(ctx, c.NS, c.Key)
	}
	return n.opt.Counter.Forget(ctx, c.NS, c.Key)
}

// dropAll has all nodes forget what they know of a key that is being reset, this one too if
// deciding is set, or if another decides about the key.
func (n *Node) dropAll(ctx context.Context, c *Check, deciding bool) error {
	errs := []error{n.dropHere(ctx, c, deciding)}
	if n.opt.Ring == nil {
		return errs[0]
	}
	var mu sync.Mutex // guards errs
	rpc.Broadcast(ctx, n.table(), dropTimeout, func(ctx context.Context, m *ring.Member) {
		task := [1]rpc.Task{{Verb: rpc.VerbDrop, Op: Op{Checks: []Check{*c}}}}
		var res [1]Result
		n.opt.Peers.Do(ctx, m, task[:], res[:])
		if err := res[0].Err; err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, fmt.Errorf("%w: not every node could be told: %v",
				syncer.ErrUnknownOutcome, err))
		}
	})
	return errors.Join(errs...)
}

// dropHere is what dropAll asks of a node.
func (n *Node) dropHere(ctx context.Context, c *Check, deciding bool) error {
	if n.opt.Counter == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, dropTimeout)
	defer cancel()
	return n.opt.Counter.Drop(ctx, c.NS, c.Key, deciding)
}

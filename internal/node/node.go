package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"twotier/syncer"
)

// Direct carries operations out in Redis itself. redisstore.Direct implements it.
type Direct interface {
	Do(ctx context.Context, op *Op, res *Result) error
	DoAll(ctx context.Context, ops []Op, res []Result)
	Series(ctx context.Context, ns, key []byte, window int64) (bucketMS int64, points []Point, err error)
	Forget(ctx context.Context, ns, key []byte) error
}

// Store is what a node needs to know of the store beneath it besides counting.
type Store interface {
	// Clock returns how far the store's clock is ahead of a local one.
	Clock(ctx context.Context, local func() time.Time) (ahead time.Duration, err error)
	// Health returns what is known of the store without asking it.
	Health() StoreHealth
}

// Options configure a [Node].
type Options struct {
	// ID names the node. Required.
	ID string
	// Address is where it can be reached, for display.
	Address string
	// Mode is ModeTwoTier unless it is said otherwise.
	Mode Mode
	// Counter is required in two-tier mode, Direct in Redis mode. A two-tier node uses Direct, if it has one, for new keys
	// once its memory is full.
	Counter *syncer.Counter
	Direct  Direct
	// Store, Clock and Partitions are required.
	Store      Store
	Clock      *Clock
	Partitions int
	// ClockInterval is how often the store is asked for its time. Default: 10 s.
	ClockInterval time.Duration
	// Logger is told of changes of state. Default: none.
	Logger *slog.Logger
}

// counter is what carries operations out.
type counter = Direct

// Node is one server. Make one with [New], start it with Open, stop it with Close. Its methods may be called at the same
// time.
type Node struct {
	opt    Options
	active counter
	ops    tally
	hot    *hotKeys
	top    topCache

	closed atomic.Bool
	stop   context.CancelFunc
	done   sync.WaitGroup
	once   sync.Once
	err    error
}

// New checks the options and returns a node that is not running yet.
func New(opt Options) (*Node, error) {
	if opt.Mode == "" {
		opt.Mode = ModeTwoTier
	}
	if opt.ClockInterval == 0 {
		opt.ClockInterval = 10 * time.Second
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	n := &Node{opt: opt}
	switch {
	case opt.ID == "" || opt.Store == nil || opt.Clock == nil || opt.Partitions == 0:
		return nil, errors.New("node: Options needs ID, Store, Clock and Partitions")
	case opt.Mode == ModeTwoTier && opt.Counter != nil:
		n.active = opt.Counter
	case opt.Mode == ModeRedis && opt.Direct != nil:
		n.active = opt.Direct
		n.hot = newHotKeys()
	default:
		return nil, fmt.Errorf("node: mode %q lacks what it counts with", opt.Mode)
	}
	return n, nil
}

// Open measures the store's clock once, if it answers, and starts the node. It runs until Close, not until ctx is done.
func (n *Node) Open(ctx context.Context) error {
	if n.stop != nil {
		return errors.New("node: opened twice")
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	n.stop = stop
	n.syncClock(ctx)
	if n.opt.Counter != nil {
		if err := n.opt.Counter.Open(ctx); err != nil {
			stop()
			return err
		}
	}
	n.done.Go(func() { n.runClock(run) })
	return nil
}

// Close flushes what is pending until ctx is done, and stops. The error says what was not flushed.
func (n *Node) Close(ctx context.Context) error {
	n.once.Do(func() {
		n.closed.Store(true)
		if n.stop == nil {
			return
		}
		if n.opt.Counter != nil {
			n.err = n.opt.Counter.Close(ctx)
		}
		n.stop()
		n.done.Wait()
	})
	return n.err
}

// Do carries out one operation. Its errors are those of syncer.Counter.Do.
func (n *Node) Do(ctx context.Context, op *Op, res *Result) error {
	err := n.active.Do(ctx, op, res)
	if err != nil && n.servesFromRedis(op, err) {
		err = n.opt.Direct.Do(ctx, op, res)
	}
	n.count(op, res, err)
	return err
}

// servesFromRedis reports whether an operation that memory has no room for can be carried out in Redis: it is about one
// key, that is not in memory, and Redis is up. If it is not, being told at once is better than to wait for nothing.
func (n *Node) servesFromRedis(op *Op, err error) bool {
	return n.opt.Mode == ModeTwoTier && n.opt.Direct != nil && len(op.Checks) == 1 &&
		errors.Is(err, syncer.ErrFull) && n.opt.Store.Health().Up
}

// DoAll carries out operations in order and sets Err in each result.
func (n *Node) DoAll(ctx context.Context, ops []Op, res []Result) {
	n.active.DoAll(ctx, ops, res)
	for i := range ops {
		if res[i].Err != nil && n.servesFromRedis(&ops[i], res[i].Err) {
			res[i].Err = n.opt.Direct.Do(ctx, &ops[i], &res[i])
		}
		n.count(&ops[i], &res[i], res[i].Err)
	}
}

// count keeps the node's own figures.
func (n *Node) count(op *Op, res *Result, err error) {
	if err != nil {
		return
	}
	n.ops.add(op.Kind, res.Source)
	if n.hot != nil && (op.Kind == syncer.Add || op.Kind == syncer.Acquire && (res.Allowed || op.CountDenied)) {
		for i := range op.Checks {
			n.hot.add(&op.Checks[i], n.opt.Clock.Now())
		}
	}
}

// Series returns the buckets of a key over a window of this many milliseconds that ends now, oldest first, and their
// width.
func (n *Node) Series(ctx context.Context, ns, key []byte, window int64) (bucketMS int64, points []Point, err error) {
	return n.active.Series(ctx, ns, key, window)
}

// Reset forgets a key in memory and in the store.
func (n *Node) Reset(ctx context.Context, ns, key []byte) error { return n.active.Forget(ctx, ns, key) }

// Top returns up to limit keys with the largest counts over the window, largest first. In Redis mode it knows only what
// this node was asked, and only the keys it was asked about most. An answer may be a second old.
func (n *Node) Top(ctx context.Context, limit int, window int64) ([]KeyCount, error) {
	if n.hot != nil {
		return n.hot.top(limit, window, n.opt.Clock.Now())
	}
	return n.top.get(ctx, n.opt.Counter, limit, window)
}

// Ready returns nil while the node can answer honestly, and whether its answers are degraded.
func (n *Node) Ready() (degraded bool, err error) {
	health := n.opt.Store.Health()
	switch {
	case n.closed.Load():
		return true, syncer.ErrClosed
	case health.Fatal:
		return true, fmt.Errorf("%w: %s", syncer.ErrUnavailable, health.Error)
	case n.opt.Mode == ModeRedis && !health.Up:
		return true, fmt.Errorf("%w: %s", syncer.ErrUnavailable, health.Error)
	}
	return !health.Up || n.opt.Counter != nil && n.opt.Counter.Stats().DegradedPartitions > 0, nil
}

// Cluster returns the cluster as this node sees it: itself.
func (n *Node) Cluster() ClusterView {
	s := n.Stats()
	state := "alive"
	if n.closed.Load() {
		state = "leaving"
	}
	return ClusterView{
		Mode: n.opt.Mode, RingVersion: s.RingVersion, Partitions: n.opt.Partitions,
		Members: []Member{{
			ID: n.opt.ID, Address: n.opt.Address, State: state, Self: true, Partitions: n.opt.Partitions, Share: 1,
		}},
		Store: s.Store, ClockOffsetMS: s.ClockOffsetMS, ClockSkewMS: s.ClockSkewMS,
		PendingBuckets: s.Counter.PendingBuckets, Keys: s.Counter.Keys,
		MemoryBytes: s.Counter.MemoryBytes, MaxMemory: s.Counter.MaxMemory,
	}
}

// Stats returns a snapshot of the node's figures.
func (n *Node) Stats() Stats {
	s := Stats{Ops: n.ops.list(), Members: 1, RingVersion: 1, Store: n.opt.Store.Health()}
	if n.opt.Mode == ModeTwoTier {
		s.Counter = n.opt.Counter.Stats()
	}
	offset, skew := n.opt.Clock.Offset()
	s.ClockOffsetMS, s.ClockSkewMS = offset.Milliseconds(), skew.Milliseconds()
	return s
}

// runClock follows the store's clock.
func (n *Node) runClock(ctx context.Context) {
	ticker := time.NewTicker(n.opt.ClockInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			n.syncClock(ctx)
		}
	}
}

func (n *Node) syncClock(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	ahead, err := n.opt.Store.Clock(ctx, n.opt.Clock.Local)
	if err != nil {
		return // the store's health says so
	}
	if step := n.opt.Clock.Follow(ahead); step > time.Second || step < -time.Second {
		n.opt.Logger.Warn("the store's clock differs from the one followed so far", "step", step)
	}
}

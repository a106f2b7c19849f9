package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/bans"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/elapsed"
	"twotier.dev/twotier/internal/events"
	"twotier.dev/twotier/internal/hotkeys"
	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/refusallog"
	"twotier.dev/twotier/internal/refusals"
	"twotier.dev/twotier/internal/routing"
	"twotier.dev/twotier/internal/storeclock"
	"twotier.dev/twotier/internal/topkeys"
	"twotier.dev/twotier/internal/verdicts"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/ring"
	"twotier.dev/twotier/syncer"
)

// Direct runs operations in Redis itself. redisstore.Direct implements it.
type Direct interface {
	Do(ctx context.Context, op *twotier.Op, res *twotier.Result) error
	DoAll(ctx context.Context, ops []twotier.Op, res []twotier.Result)
	Series(ctx context.Context, ns, key []byte,
		window int64) (bucketMS int64, points []twotier.Point, err error)
	Snapshot(ctx context.Context, ns, key []byte) (v leaparray.View, now int64, err error)
	Forget(ctx context.Context, ns, key []byte) error
}

// Store holds the methods that a node needs of its store, apart from counting.
type Store interface {
	// ClockAhead returns how far the store's clock is ahead of a local one.
	ClockAhead(ctx context.Context, local func() time.Time) (ahead time.Duration, err error)
	// Health returns the state of the store, without asking it.
	Health() cluster.StoreHealth
}

// Options configure a [Node].
type Options struct {
	// ID names the node. Required.
	ID string
	// Address is the node's address, for display before Open, and only without a cluster.
	Address string
	// Mode is the initial mode. Default: cluster.TwoTier.
	Mode cluster.Mode
	// Counter is required unless the node always stays in Redis mode. Direct is required in Redis
	// mode; a two-tier node uses it, if set, for new keys once its memory is full. In a cluster the
	// counter must start as NotOwner.
	Counter *syncer.Counter
	Direct  Direct
	// Ack replaces twotier.AckDefault in the operations that this node receives from clients,
	// whichever node runs them. Default: the configuration of the counter that runs them.
	Ack twotier.Ack
	// Ring and Peers make the node part of a cluster. Ring's Options.OnChange must call
	// [Node.FollowTable].
	Ring  *ring.Ring
	Peers Peers
	// Roster is nil if no other process uses the same data.
	Roster Roster
	// Store, Clock and Placement are required.
	Store     Store
	Clock     *storeclock.Clock
	Placement twotier.Placement
	// HotRate is the rate of operations per second forwarded on one key above which this node
	// borrows part of the key's remaining limits. 0 keeps every key with its owner.
	HotRate float64
	// Refusals is the approximate number of refusals by other nodes to remember, which can then be
	// repeated without asking. Default: 16,384.
	Refusals int
	// ClockInterval is how often to ask the store for its time while the store works. Default: 10
	// s.
	ClockInterval time.Duration
	// Pulse detects that the process stood still: then this node learns its partitions anew. Nil if
	// it owns all of them. The counter's pulse must be the same one.
	Pulse *elapsed.Pulse
	// Asleep returns the total time that the machine has been suspended, see elapsed.Asleep. Nil if
	// that is unknown: then a suspension looks like a step of the store's clock.
	Asleep func() time.Duration
	// Rules returns the version of the rules in force and their author; 0 while it is unknown. Nil
	// if there are no rules.
	Rules func() (version int64, who string)
	// Version is the program's version, reported to other nodes.
	Version string
	// Sinks receive the decisions that this node's endpoints answer, after the node's own sinks.
	Sinks []decisions.Sink
	// Logger receives changes of state. Default: none.
	Logger *slog.Logger
}

// Node is one server. Create it with [New], start it with Open, stop it with Close. Its methods are
// safe for concurrent use.
type Node struct {
	opt    Options
	lone   atomic.Pointer[ring.Table] // only without a cluster
	ops    tally
	time   *storeclock.Keeper
	sample *topkeys.Sample // only if the node can be in Redis mode
	// leased samples the keys of which leases were taken in Redis mode.
	leased *topkeys.Sample
	leases *topkeys.Cache // the keys with the most open leases
	top    *topkeys.Cache // only if the node has a counter
	denied *topkeys.Refused
	// shadowed counts the refusals that rules in shadow would have made.
	shadowed *topkeys.Refused
	bans     *bans.Log
	verdicts *verdicts.Counters
	// refusalLog records the refusals that this node has answered.
	refusalLog *refusallog.Log
	modes      *modes.Switch
	owned      *ownership.Partitions
	changed    chan struct{} // buffered, size 1: there may be a new table
	tabled     chan struct{} // the same for the log of events
	// backtests holds an element while a backtest runs; size 1.
	backtests chan struct{}
	parts     *multiowner.Participant
	router    *routing.Router
	hot       *hotkeys.Tracker
	refused   refusals.Cache
	log       *events.Log

	served   atomic.Int64 // tasks of other nodes
	tables   atomic.Int64 // changes of the table
	opened   atomic.Bool
	entered  atomic.Bool // Open has succeeded
	retired  atomic.Bool // reports that it is leaving, but does not leave yet
	draining atomic.Bool
	gaveUp   atomic.Bool // the last flush gave up before the store had everything
	closed   atomic.Bool
	run      context.Context
	stop     context.CancelFunc
	tasksMu  sync.Mutex // orders spawn and Close
	done     sync.WaitGroup
	once     sync.Once
	err      error
}

const defaultRefusals = 1 << 14

// New checks the options and returns a node that is not running yet.
func New(opt Options) (*Node, error) {
	if opt.Mode == "" {
		opt.Mode = cluster.TwoTier
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.Refusals == 0 {
		opt.Refusals = defaultRefusals
	}
	n := &Node{opt: opt}
	switch {
	case opt.ID == "" || opt.Store == nil || opt.Clock == nil || opt.Placement.Partitions == 0:
		return nil, errors.New("node: Options needs ID, Store, Clock and Placement")
	case (opt.Ring == nil) != (opt.Peers == nil) || opt.Ring != nil && opt.Counter == nil:
		return nil, errors.New("node: a cluster needs Ring, Peers and Counter")
	case opt.Mode == cluster.TwoTier && opt.Counter != nil:
	case opt.Mode == cluster.Redis && opt.Direct != nil:
	default:
		return nil, fmt.Errorf("node: mode %q needs its counter", opt.Mode)
	}
	n.log = events.New(opt.ID, opt.Clock.Now)
	n.newSinks()
	n.newTop()
	if opt.Ring == nil {
		if err := n.setSingleNodeTable(opt.Address); err != nil {
			return nil, err
		}
	}
	n.run, n.stop = context.WithCancel(context.Background())
	n.changed, n.tabled = make(chan struct{}, 1), make(chan struct{}, 1)
	n.backtests = make(chan struct{}, 1)
	n.newParts()
	return n, nil
}

// setSingleNodeTable builds the table of a node without a cluster.
func (n *Node) setSingleNodeTable(address string) error {
	self := ring.Member{ID: n.opt.ID, Name: n.opt.ID, Address: address,
		Tag: modes.Tag(modes.Mode(n.opt.Mode))}
	lone, err := ring.NewTable([]ring.Member{self}, n.opt.ID, n.opt.Placement.Partitions,
		n.opt.Placement.Seed)
	n.lone.Store(lone)
	return err
}

// inRedis reports whether operations run in Redis alone.
func (n *Node) inRedis() bool { return n.modes.InRedis() }

// Mode returns the mode that this node counts in.
func (n *Node) Mode() cluster.Mode { return cluster.Mode(n.modes.Mode()) }

// InDoubt returns the number of acquires over several nodes that this node has counted without
// knowing whether they were carried out, or is taking back.
func (n *Node) InDoubt() int { return n.parts.InDoubt() }

// SetMode changes the mode of the whole cluster, see modes.Switch.Change.
func (n *Node) SetMode(ctx context.Context, mode cluster.Mode) error {
	return n.modes.Change(ctx, modes.Mode(mode))
}

// background is like spawn, with a context that is done when the node closes.
func (n *Node) background(fn func(ctx context.Context)) { n.spawn(func() { fn(n.run) }) }

// backgroundOrNow is like background, but calls fn directly if the node is closing.
func (n *Node) backgroundOrNow(fn func(ctx context.Context)) {
	if !n.spawn(func() { fn(n.run) }) {
		fn(n.run)
	}
}

// spawn runs fn and returns true, unless the node is closing. Close waits for it.
func (n *Node) spawn(fn func()) bool {
	n.tasksMu.Lock()
	defer n.tasksMu.Unlock()
	open := n.run.Err() == nil
	if open {
		n.done.Go(fn)
	}
	return open
}

// Open measures the store's clock once, if the store answers, joins the cluster, and starts the
// node. address is where the node serves HTTP; a node in a cluster must be serving already. The
// node runs until Close; ctx bounds Open only.
func (n *Node) Open(ctx context.Context, address string) error {
	if n.opened.Swap(true) {
		return errors.New("node: opened twice")
	}
	n.time.Measure(ctx)
	if n.opt.Counter != nil {
		if err := n.opt.Counter.Open(ctx); err != nil {
			return err
		}
	}
	n.spawn(func() { n.time.Run(n.run) })
	if n.opt.Pulse != nil {
		n.beat()
		n.background(n.runPulse)
	}
	n.background(n.runReportState)
	err := n.enter(ctx, address)
	n.entered.Store(err == nil)
	return err
}

// FollowTable makes the node follow a new table of the ring.
func (n *Node) FollowTable(t *ring.Table) {
	n.tables.Add(1)
	n.router.Refresh()
	n.opt.Peers.RetainLinks(t)
	n.wakeFollow()
	n.wakeReporter()
}

// wakeFollow makes runFollow check the table.
func (n *Node) wakeFollow() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// followInterval is how often partitions and the mode are checked even if the table does not
// change.
const followInterval = 100 * time.Millisecond

// runFollow follows the table and the other nodes' mode until ctx is done.
func (n *Node) runFollow(ctx context.Context) {
	ticker := time.NewTicker(followInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.changed:
		case <-ticker.C:
		}
		n.owned.FollowTable()
		n.modes.FollowMembers()
	}
}

// Close flushes pending counts until ctx is done, leaves the cluster and stops. The error lists the
// counts that were not flushed.
func (n *Node) Close(ctx context.Context) error {
	n.once.Do(func() {
		n.closed.Store(true)
		if !n.opened.Load() {
			n.stop()
			return
		}
		if n.opt.Counter != nil {
			n.err = n.closeCounter(ctx)
		}
		if n.opt.Ring != nil {
			n.err = errors.Join(n.err, n.opt.Ring.Close(ctx))
		}
		n.tasksMu.Lock()
		n.stop()
		n.tasksMu.Unlock()
		n.owned.WakeWaiters()
		n.done.Wait()
		if n.opt.Roster != nil {
			n.opt.Roster.Leave(ctx)
		}
		n.refused.Close()
	})
	return n.err
}

// closeCounter closes the counter. It does not wait again if an earlier flush has given up.
func (n *Node) closeCounter(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if n.gaveUp.Load() {
		cancel()
	}
	return n.opt.Counter.Close(ctx)
}

// Ready returns an error if the node can't answer correctly; otherwise it returns the reasons why
// its answers are degraded, if they are.
func (n *Node) Ready() (degraded []string, err error) {
	health := n.opt.Store.Health()
	switch {
	case n.closed.Load():
		return nil, twotier.ErrClosed
	case !n.entered.Load():
		return nil, fmt.Errorf("%w: starting", twotier.ErrUnavailable)
	case n.retired.Load(), n.draining.Load():
		return nil, fmt.Errorf("%w: this node is leaving", twotier.ErrUnavailable)
	case health.Fatal, n.inRedis() && !health.Up:
		return nil, fmt.Errorf("%w: %s", twotier.ErrUnavailable, health.Error)
	}
	if !health.Up {
		degraded = append(degraded, "Redis: "+health.Error)
	} else if n.opt.Counter != nil && n.opt.Counter.Stats().DegradedPartitions > 0 {
		degraded = append(degraded, "Redis has not taken some of the counts")
	}
	if why := n.opt.Clock.Doubt(); why != "" {
		degraded = append(degraded, why.String())
	}
	return degraded, nil
}

package node

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/bans"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/decisions"
	"twotier.dev/twotier/internal/elapsed"
	"twotier.dev/twotier/internal/hotkeys"
	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/refusallog"
	"twotier.dev/twotier/internal/routing"
	"twotier.dev/twotier/internal/storeclock"
	"twotier.dev/twotier/internal/topkeys"
	"twotier.dev/twotier/internal/verdicts"
)

// newParts creates the parts of the node. None of them holds the node: each gets only its
// dependencies.
func (n *Node) newParts() {
	opt := &n.opt
	n.time = storeclock.NewKeeper(storeclock.Options{
		Clock: opt.Clock, Source: opt.Store, Interval: opt.ClockInterval, Asleep: opt.Asleep,
		Changed: func() { n.router.Refresh() }, Logger: opt.Logger,
	})
	n.owned = ownership.New(ownership.Options{
		Partitions: opt.Placement.Partitions, Alone: opt.Ring == nil,
		Suspended: opt.Mode == cluster.Redis,
		Table:     n.table, Self: n.self, Counter: opt.Counter, Peers: opt.Peers,
		InRedis: n.inRedis,
		Go:      n.background,
	})
	n.parts = multiowner.NewParticipant(multiowner.Options{
		Self: func() string { return n.self().Name }, Table: n.table, Counter: markingCounter{n},
		Peers: opt.Peers, InRedis: n.inRedis, Go: n.background, Logger: opt.Logger,
		TakeBack: func(ctx context.Context, op *twotier.Op) error {
			return n.router.Do(ctx, op, new(twotier.Result))
		},
	})
	n.modes = n.newSwitch()
	n.hot = hotkeys.New(hotkeys.Options{
		Rate: opt.HotRate, Placement: opt.Placement, Table: n.table,
		Counter: opt.Counter, Peers: opt.Peers, Go: n.backgroundOrNow, Paused: n.inRedis,
		Changed: func() { n.router.Refresh() }, Logger: opt.Logger,
	})
	n.router = n.newRouter()
}

// newRouter makes the router of this node.
func (n *Node) newRouter() *routing.Router {
	opt := routing.Options{
		View: n.view, Placement: n.opt.Placement, Self: func() string { return n.self().Name },
		Owners: n.owned, Peers: n.opt.Peers, Acquirer: multiowner.NewAcquirer(n.parts),
		Loans:    n.hot,
		Refusals: &n.refused, Modes: n.modes,
		Counter:   n.opt.Counter,
		Recalling: hotkeys.RecallingCounter{Counter: n.opt.Counter, Tracker: n.hot},
		StoreUp:   func() bool { return n.opt.Store.Health().Up },
	}
	if n.opt.Direct != nil {
		opt.Direct = n.opt.Direct
	}
	return routing.New(opt)
}

// view returns the current state of the cluster for routing.
func (n *Node) view() routing.View {
	return routing.View{Table: n.table(), InRedis: n.inRedis(), Shared: n.hot.Shared(),
		InDoubt: n.opt.Clock.Doubt() != ""}
}

// newSwitch makes the mode switch of this node.
func (n *Node) newSwitch() *modes.Switch {
	opt := modes.Options{
		Mode: modes.Mode(n.opt.Mode), Switchable: n.opt.Direct != nil && n.opt.Counter != nil,
		Table: n.table, Self: n.self, Peers: n.opt.Peers, Ownership: n.owned, Idle: n.parts.Idle,
		Go: n.background, Changed: func() { n.router.Refresh() }, Logger: n.opt.Logger,
		StoreUp: func() bool { return n.opt.Store.Health().Up },
	}
	if n.opt.Counter != nil {
		opt.Flush = n.opt.Counter.Flush
	}
	if n.opt.Ring != nil {
		opt.Announce = n.opt.Ring.SetTag
	}
	return modes.New(opt)
}

// newSinks makes and registers everything that receives the decisions of this node's endpoints.
func (n *Node) newSinks() {
	now := n.opt.Clock.Now
	n.refusalLog = refusallog.New(n.opt.ID, now)
	n.denied = topkeys.NewRefused(twotier.Refused, now)
	n.shadowed = topkeys.NewRefused(twotier.ShadowRefused, now)
	n.bans = bans.New(now)
	own := []decisions.Sink{n.refusalLog, n.denied, n.shadowed, n.bans}
	n.verdicts = verdicts.New(append(own, n.opt.Sinks...)...)
}

// Verdicts returns the counters that this node's endpoints pass their decisions to.
func (n *Node) Verdicts() *verdicts.Counters { return n.verdicts }

// Collectors returns the metrics of decisions.
func (n *Node) Collectors() []prometheus.Collector {
	return []prometheus.Collector{n.verdicts, n.bans}
}

// runPulse watches for standstills of this process until ctx is done.
func (n *Node) runPulse(ctx context.Context) {
	ticker := time.NewTicker(elapsed.BeatInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			n.beat()
		}
	}
}

// beat records that this process is running. After a standstill, the node learns its partitions
// anew.
func (n *Node) beat() {
	n.opt.Pulse.Beat(func() {
		n.opt.Logger.Warn("this process stood still: learning anew which keys it decides about")
		n.owned.Relearn()
	})
}

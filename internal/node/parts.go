package node

import (
	"context"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/hotkeys"
	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/routing"
	"twotier.dev/twotier/internal/storeclock"
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

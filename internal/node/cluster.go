package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/events"
	"twotier.dev/twotier/internal/modes"
	"twotier.dev/twotier/internal/retry"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

// Cluster returns this node's view of the cluster.
func (n *Node) Cluster() cluster.View {
	s := n.Stats()
	t := n.table()
	v := cluster.View{
		Mode: n.Mode(), RingVersion: s.RingVersion, Partitions: t.Partitions(), Held: s.Held,
		HashTags: n.opt.Placement.HashTags,
		Store:    s.Store, ClockOffsetMS: s.ClockOffsetMS, ClockSkewMS: s.ClockSkewMS,
		ClockDoubt: s.ClockDoubt,
		HotKeys:    s.HotKeys, LeasedKeys: s.LeasedKeys,
		PendingBuckets: s.Counter.PendingBuckets, Keys: s.Counter.Keys,
		MemoryBytes: s.Counter.MemoryBytes, MaxMemory: s.Counter.MaxMemory,
	}
	if n.opt.Counter != nil {
		v.StaleAfterMS = n.opt.Counter.MaxStaleness().Milliseconds()
	}
	for i := range t.Len() {
		v.Members = append(v.Members, n.memberView(t, i, s.Peers.Silent))
	}
	return v
}

// memberView returns this node's view of one member. silent lists the processes that don't answer.
func (n *Node) memberView(t *ring.Table, at int, silent []string) cluster.Member {
	m := t.Member(at)
	v := cluster.Member{
		ID: m.ID, Address: m.Address, State: cluster.Alive, Self: at == t.Self(),
		Partitions: t.OwnedCount(at),
		Share:      float64(t.OwnedCount(at)) / float64(t.Partitions()), Started: m.Born,
	}
	if mode, ok := modes.FromTag(m.Tag); ok {
		v.Mode = cluster.Mode(mode)
	}
	switch {
	case v.Self && n.closed.Load(), v.Self && n.draining.Load(), m.Draining:
		v.State = cluster.Leaving
	case v.Self && !n.opened.Load(), m.Starting:
		v.State = cluster.Starting
	case slices.Contains(silent, m.Name):
		v.State = cluster.Suspect
	}
	if v.Self && n.opt.Ring == nil {
		v.Mode = n.Mode()
	}
	return v
}

// Owners returns, for every partition, the index of its owner in the members of Cluster, and the
// seed of the hash that maps keys to partitions.
func (n *Node) Owners() (owners []int, seed *uint64) {
	t := n.table()
	owners = make([]int, t.Partitions())
	for p := range owners {
		owners[p] = t.Owner(p)
	}
	return owners, &n.opt.Placement.Seed
}

// Stats returns a snapshot of the node's counters.
func (n *Node) Stats() cluster.Stats {
	t := n.table()
	s := cluster.Stats{
		Ops: n.ops.list(), Members: t.Len(), RingVersion: t.Version(), TablesTotal: n.tables.Load(),
		ServedTotal:             n.served.Load(),
		RememberedRefusalsTotal: n.refused.Hits(), Mode: n.Mode(), Store: n.opt.Store.Health(),
	}
	s.HotKeys, s.LeasedKeys = n.hot.Sizes()
	phases, moves := n.owned.Figures()
	s.Held, s.Phases, s.Moves = phases.HeldCount(), phases, moves
	if t.Self() >= 0 {
		s.Owned = t.OwnedCount(t.Self())
	}
	if n.opt.Peers != nil {
		s.Peers = n.opt.Peers.Stats()
	}
	s.States, s.Links = n.countMembers(t, s.Peers.Silent)
	if n.opt.Counter != nil {
		s.Counter = n.opt.Counter.Stats()
	}
	offset, skew := n.opt.Clock.Offset()
	s.ClockOffsetMS, s.ClockSkewMS = offset.Milliseconds(), skew.Milliseconds()
	s.ClockDoubt = string(n.opt.Clock.Doubt())
	return s
}

// pingTimeout bounds the wait for a twin's proof of life, and pings is the number of attempts: if
// the whole machine stands still for a moment, the first one times out unfairly.
const (
	pingTimeout = 2 * time.Second
	pings       = 2
)

// refuseTwin returns an error if another process with the same ID is alive. A process that has just
// died may still be in the table, but does not answer.
func (n *Node) refuseTwin(ctx context.Context) error {
	for _, m := range n.opt.Ring.Twins() {
		if n.isAlive(ctx, &m) {
			return fmt.Errorf("%w: node %s is alive at %s; give this one another --node",
				ring.ErrRefused, m.ID, m.Address)
		}
	}
	return nil
}

// isAlive reports whether a process answers.
func (n *Node) isAlive(ctx context.Context, m *ring.Member) bool {
	for range pings {
		attempt, cancel := context.WithTimeout(ctx, pingTimeout)
		err := n.opt.Peers.Ask(attempt, m, &PingRequest{}, nil)
		cancel()
		if err == nil || errors.Is(err, rpc.ErrUnreachable) {
			return err == nil
		}
	}
	return false
}

// status returns this node's report about itself.
func (n *Node) status() *cluster.Status {
	s := n.Stats()
	v := &cluster.Status{
		Version: n.opt.Version, Mode: s.Mode, RingVersion: s.RingVersion,
		Held: s.Held, Incoming: s.Phases.Incoming,
		Outgoing: s.Phases.Outgoing, Moving: s.Phases.Moving,
		Taken: s.Moves.Taken, Given: s.Moves.Given, PendingBuckets: s.Counter.PendingBuckets,
		Keys:        s.Counter.Keys,
		MemoryBytes: s.Counter.MemoryBytes, StoreUp: s.Store.Up, Served: s.ServedTotal,
		UnflushedAgeMS: s.Counter.UnflushedAge.Milliseconds(),
		MaxLagMS:       s.Counter.MaxLag.Milliseconds(),
		Waiting:        s.Counter.WaitingForRoom, Behind: s.Counter.BehindTotal,
	}
	v.Latency = new(cluster.Latency)
	v.Latency.Bounds, v.Latency.Counts = n.verdicts.Latencies()
	for _, o := range s.Ops {
		v.Ops += o.Total
		switch o.Source {
		case string(twotier.SourceOwner):
			v.Forwarded += o.Total
		case string(twotier.SourceFallback):
			v.Fallback += o.Total
		}
	}
	return v
}

// Survey asks all members for their status and adds the answers that arrive within a second to the
// view. It skips members that have been silent for a while.
func (n *Node) Survey(ctx context.Context, v *cluster.View) {
	t := n.table()
	found := make([]*cluster.Status, t.Len())
	if t.Self() >= 0 {
		found[t.Self()] = n.status()
	}
	if n.opt.Ring != nil {
		silent := n.opt.Peers.Stats().Silent
		rpc.Broadcast(ctx, t, topTimeout, func(ctx context.Context, m *ring.Member) {
			var a cluster.Status
			if !slices.Contains(silent, m.Name) &&
				n.opt.Peers.Ask(ctx, m, &StatusRequest{}, &a) == nil {
				found[t.Find(m.Name)] = &a
			}
		})
	}
	for i := range v.Members {
		for at, s := range found {
			if m := t.Member(at); m.ID == v.Members[i].ID && m.Born == v.Members[i].Started {
				v.Members[i].Status = s
			}
		}
	}
}

// countMembers counts the members by state, and lists which of the other members can be reached.
func (n *Node) countMembers(
	t *ring.Table, silent []string,
) (states []cluster.StateCount, links []cluster.Link) {
	states = []cluster.StateCount{{State: cluster.Alive}, {State: cluster.Suspect},
		{State: cluster.Leaving}, {State: cluster.Starting}}
	for i := range t.Len() {
		state := n.memberView(t, i, silent).State
		states[slices.IndexFunc(states, func(c cluster.StateCount) bool {
			return c.State == state
		})].Members++
		if m := t.Member(i); i != t.Self() {
			links = append(links, cluster.Link{ID: m.ID, Up: !slices.Contains(silent, m.Name)})
		}
	}
	return states, links
}

// observeInterval is how often the event log receives the node's state, apart from each new table.
const observeInterval = 500 * time.Millisecond

// runReportState passes the node's state to the event log until ctx is done.
func (n *Node) runReportState(ctx context.Context) {
	ticker := time.NewTicker(observeInterval)
	defer ticker.Stop()
	for {
		n.reportState()
		select {
		case <-ctx.Done():
			return
		case <-n.tabled:
		case <-ticker.C:
		}
	}
}

// wakeReporter makes runReportState act at once.
func (n *Node) wakeReporter() {
	select {
	case n.tabled <- struct{}{}:
	default:
	}
}

// reportState passes the node's current state to the event log.
func (n *Node) reportState() {
	s := n.Stats()
	state := events.State{
		Mode: s.Mode, StoreUp: s.Store.Up, StoreError: s.Store.Error, ClockDoubt: s.ClockDoubt,
		Losses: s.Counter.LossesTotal,
	}
	t := n.table()
	for i := range t.Len() {
		state.Members = append(state.Members, n.memberView(t, i, s.Peers.Silent))
	}
	if n.opt.Rules != nil {
		state.Rules, state.RulesBy = n.opt.Rules()
	}
	n.log.RecordState(state)
}

// Events returns the events seen by all nodes that answer within a second.
func (n *Node) Events(ctx context.Context) cluster.Events {
	parts := []cluster.Events{n.log.Snapshot()}
	t := n.table()
	var members []string
	for i := range t.Len() {
		members = append(members, t.Member(i).ID)
	}
	missing := askOthers(ctx, n, topTimeout, &EventsRequest{}, func(seen *cluster.Events) {
		parts = append(parts, *seen)
	})
	all := events.Merge(parts, members)
	slices.Sort(missing)
	all.Missing = missing
	return all
}

// Roster lists the living processes that use the same data. roster.Roster implements it.
type Roster interface {
	// Enter lists this node, and waits until it belongs to the cluster of the listed nodes.
	Enter(ctx context.Context) error
	// Run keeps this node listed until ctx is done.
	Run(ctx context.Context)
	// Leave removes this node from the list.
	Leave(ctx context.Context)
}

// enter makes the node one that others may find, and an owner.
func (n *Node) enter(ctx context.Context, address string) error {
	if n.opt.Ring != nil {
		return n.join(ctx, address)
	}
	err := n.setSingleNodeTable(address)
	n.router.Refresh()
	return errors.Join(err, n.enterRoster(ctx))
}

// enterRoster enters the roster, if there is one, and keeps this node in it.
func (n *Node) enterRoster(ctx context.Context) error {
	if n.opt.Roster == nil {
		return nil
	}
	if err := n.opt.Roster.Enter(ctx); err != nil {
		return err
	}
	n.background(n.opt.Roster.Run)
	return nil
}

// settleTimeout bounds how long a joining node waits for its partitions.
const settleTimeout = 10 * time.Second

// join makes the node part of the cluster. It returns once the node decides about its partitions,
// or enough time has passed.
func (n *Node) join(ctx context.Context, address string) error {
	if err := n.refused.Open(n.opt.Refusals); err != nil {
		return err
	}
	if err := n.opt.Ring.Open(ctx, address); err != nil {
		return err
	}
	n.router.Refresh()
	if err := n.enterRoster(ctx); err != nil {
		return err
	}
	if err := n.refuseTwin(ctx); err != nil {
		return err
	}
	n.opt.Ring.Enter(ctx)
	n.router.Refresh()
	n.background(n.runFollow)
	n.background(n.parts.Run)
	n.spawn(func() { n.hot.Run(n.run) })
	n.wakeFollow()
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for !n.owned.IsSettled() && ctx.Err() == nil {
		retry.Pause(ctx, drainPause)
	}
	return nil
}

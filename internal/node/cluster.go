package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/modes"
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

package node

import (
	"context"
	"slices"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/rpc"
	"twotier.dev/twotier/ring"
)

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
